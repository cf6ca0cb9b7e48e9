"use strict";
// Decisions are a list of {index, decision}, in the order in which they were made, so that they can be undone.
const content = JSON.parse(document.getElementById("content").textContent);
const element = (id) => document.getElementById(id);
const cards = content.cards;
let decisions = load();
let current = Math.max(0, cards.findIndex((card) => !decisionOn(card))); // the first undecided card

function load() {
  try {
    const stored = JSON.parse(localStorage.getItem(content.key) || "[]");
    return Array.isArray(stored) ? stored.filter((entry) => cards.some((card) => card.index === entry.index)) : [];
  } catch {
    return [];
  }
}

function store() {
  try {
    localStorage.setItem(content.key, JSON.stringify(decisions));
  } catch {
    element("progress").textContent += " This browser cannot store decisions: export them before you close the page.";
  }
}

function decisionOn(card) {
  return decisions.find((entry) => entry.index === card.index)?.decision;
}

function decide(decision) {
  const card = cards[current];
  decisions = decisions.filter((entry) => entry.index !== card.index).concat([{ index: card.index, decision }]);
  current = Math.min(current + 1, cards.length - 1);
  show();
  store();
}

function undo() {
  const last = decisions.pop();
  if (last) current = cards.findIndex((card) => card.index === last.index);
  show();
  store();
}

function move(step) {
  current = Math.min(Math.max(current + step, 0), cards.length - 1);
  show();
}

function percent(share) {
  return share > 0.99 ? "> 99 %" : `${Math.round(100 * share)} %`;
}

function show() {
  const card = cards[current];
  const decision = decisionOn(card);
  const accepted = decisions.filter((entry) => entry.decision === "accept").length;
  const counts = `${decisions.length} decided: ${accepted} accepted, ${decisions.length - accepted} rejected.`;
  const done = decisions.length === cards.length ? " All done: export them." : "";
  element("progress").textContent = `Suggestion ${current + 1} of ${cards.length}. ${counts}${done}`;
  element("card").dataset.decision = decision || "";
  element("name").textContent = card.id;
  element("given").textContent = card.given;
  element("suggested").textContent = card.suggested;
  element("chances").textContent = `Chance that the label is wrong: ${percent(card.chance)}. Votes for the suggestion: ${percent(card.votes)}.`;
  element("decision").textContent = { accept: "Accepted.", reject: "Rejected: the given label stays." }[decision] || "";
  element("image").hidden = !card.image;
  if (card.image) element("image").src = card.image;
  element("image").alt = `Example ${card.id}`;
  element("values").hidden = !card.values.length;
  element("values").textContent = card.values.map(([name, value]) => (value ? `${name}: ${value}` : name)).join("\n");
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
  const drawing = element("margins");
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
  const cell = (value) => `"${isFormula(String(value)) ? "'" : ""}${String(value).replaceAll('"', '""')}"`; // as in lists of labels
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
for (const [id, action] of Object.entries(actions)) element(id).addEventListener("click", action);

const keys = { a: "accept", r: "reject", u: "undo", ArrowLeft: "back", ArrowRight: "next" };
document.addEventListener("keydown", (event) => {
  const action = keys[event.key] || keys[event.key.toLowerCase()];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (event.repeat && action !== "back" && action !== "next") return; // holding a key decides on one card only
  actions[action]();
});
show();
