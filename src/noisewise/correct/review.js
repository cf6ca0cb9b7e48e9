"use strict";
// Decisions are a map from the number of an example to "accept" or "reject"; the order they were made in is kept for undo.
const content = JSON.parse(document.getElementById("content").textContent);
const at = (id) => document.getElementById(id);
const cards = content.cards;
let made = load();
let place = Math.max(0, cards.findIndex((card) => !decisionOn(card))); // where the last visit ended

function load() {
  try {
    const kept = JSON.parse(localStorage.getItem(content.key) || "[]");
    return Array.isArray(kept) ? kept.filter((one) => cards.some((card) => card.index === one.index)) : [];
  } catch {
    return [];
  }
}

function keep() {
  try {
    localStorage.setItem(content.key, JSON.stringify(made));
  } catch {
    at("progress").textContent += " This browser does not keep decisions: export before you close the page.";
  }
}

function decisionOn(card) {
  return made.find((one) => one.index === card.index)?.decision;
}

function decide(decision) {
  const card = cards[place];
  made = made.filter((one) => one.index !== card.index).concat([{ index: card.index, decision }]);
  place = Math.min(place + 1, cards.length - 1);
  show();
  keep();
}

function undo() {
  const last = made.pop();
  if (last) place = cards.findIndex((card) => card.index === last.index);
  show();
  keep();
}

function move(step) {
  place = Math.min(Math.max(place + step, 0), cards.length - 1);
  show();
}

function percent(share) {
  return share > 0.99 ? "> 99 %" : `${Math.round(100 * share)} %`;
}

function show() {
  const card = cards[place];
  const decision = decisionOn(card);
  const accepted = made.filter((one) => one.decision === "accept").length;
  const counts = `${made.length} decided: ${accepted} accepted, ${made.length - accepted} rejected.`;
  const done = made.length === cards.length ? " That is all: export them." : "";
  at("progress").textContent = `Suggestion ${place + 1} of ${cards.length}. ${counts}${done}`;
  at("card").dataset.decision = decision || "";
  at("name").textContent = card.id;
  at("given").textContent = card.given;
  at("suggested").textContent = card.suggested;
  at("chances").textContent = `Chance that the label is wrong: ${percent(card.chance)}. Votes for the suggestion: ${percent(card.votes)}.`;
  at("decision").textContent = { accept: "Accepted.", reject: "Rejected: the given label stays." }[decision] || "";
  at("image").hidden = !card.image;
  if (card.image) at("image").src = card.image;
  at("image").alt = `Example ${card.id}`;
  at("values").hidden = !card.values.length;
  at("values").textContent = card.values.map(([name, value]) => (value ? `${name}: ${value}` : name)).join("\n");
  draw(card.margins);
}

function draw(margins) {
  const known = margins.filter((value) => value !== null);
  const reach = Math.max(1, ...known.map(Math.abs));
  const x = (step) => (240 * step) / Math.max(1, margins.length - 1);
  const y = (value) => 32 - (30 * value) / reach;
  let path = "";
  margins.forEach((value, step) => {
    if (value !== null) path += `${path && margins[step - 1] !== null ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  const drawing = at("margins");
  drawing.replaceChildren();
  for (const [kind, attributes] of [["line", { x1: 0, x2: 240, y1: 32, y2: 32 }], ["path", { d: path }]]) {
    const part = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) part.setAttribute(name, value);
    drawing.append(part);
  }
}

function entries() {
  return cards.flatMap((card) => {
    const decision = decisionOn(card);
    return decision ? [{ index: card.index, id: card.id, given_label: card.given, suggested_label: card.suggested, decision }] : [];
  });
}

function save(name, kind, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

function asCsv() {
  const columns = ["index", "id", "given_label", "suggested_label", "decision"];
  const isFormula = (text) => /^'*[=+\-@\t\r]/.test(text) && !/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text);
  const cell = (value) => `"${isFormula(String(value)) ? "'" : ""}${String(value).replaceAll('"', '""')}"`; // as lists of labels have it
  return [columns, ...entries().map((entry) => columns.map((name) => entry[name]))].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

const actions = {
  accept: () => decide("accept"),
  reject: () => decide("reject"),
  undo,
  back: () => move(-1),
  next: () => move(1),
  "export-json": () => save("decisions.json", "application/json", JSON.stringify(entries(), null, 1) + "\n"),
  "export-csv": () => save("decisions.csv", "text/csv", asCsv()),
};
for (const [id, action] of Object.entries(actions)) at(id).addEventListener("click", action);

const keys = { a: "accept", r: "reject", u: "undo", ArrowLeft: "back", ArrowRight: "next" };
document.addEventListener("keydown", (event) => {
  const action = keys[event.key] || keys[event.key.toLowerCase()];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (event.repeat && action !== "back" && action !== "next") return; // a key held down decides on one card, not on all
  actions[action]();
});
show();
