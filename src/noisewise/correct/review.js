"use strict";
// Decisions are kept as steps, {entries: [[index, decision, label]], undo}, in the order in which they were made. The state of every card
// follows from the steps, so that several tabs, a reload and the server's file agree. An undo is a step too: it takes one step back.
const content = JSON.parse(document.getElementById("content").textContent);
const element = (id) => document.getElementById(id);
const TILES = 24;
const SHOWN_CLASSES = 60;
const PAIRS = 200;
const LONG = 60; // characters of a text that gets a place of its own
const EVERY = 2000; // milliseconds between questions to the server

const cards = content.cards.map(([index, given, suggested, chance, votes], number) => ({ number, index, given, suggested, chance, votes }));
const numbers = new Map(cards.map((card) => [card.index, card.number]));
const nameOf = (label) => content.classes[label];

let saved = []; // steps in the browser's or the server's store
let pending = []; // steps that the server has not confirmed
let states = new Map(); // index → [decision, label]
let undoable = []; // of the steps that can be undone: what was decided on their cards before
let current = 0;
let page = 0; // of the grid
let view = "single";
let pairWasChosen = false; // else the grid begins with the largest pair
let unticked = new Set(); // examples of the grid that a decision leaves out
let lost = false; // whether the server does not answer
let finished = false;

function replay() {
  states = new Map();
  undoable = [];
  for (const step of [...saved, ...pending]) {
    const before = step.entries.map(([index]) => [index, ...(states.get(index) || ["undecided", null])]);
    if (step.undo) undoable.pop();
    else undoable.push(before);
    for (const [index, decision, label] of step.entries) {
      if (decision === "undecided") states.delete(index);
      else states.set(index, [decision, label]);
    }
  }
}

const decisionOn = (card) => states.get(card.index);
function decide(chosen, decision, label) {
  if (!chosen.length || lost) return;
  const entries = chosen.map((card) => {
    const wanted = decision === "accept" ? card.suggested : label;
    if (decision === "drop" || decision === "unsure") return [card.index, decision, null];
    return decision === "keep" || wanted === card.given ? [card.index, "keep", null] : [card.index, "relabel", nameOf(wanted)];
  });
  submit({ entries, undo: false });
  if (view === "single") current = nextUndecided();
  else unticked = new Set();
  show();
}

function undo() {
  if (!undoable.length || lost) return;
  const before = undoable[undoable.length - 1];
  submit({ entries: before, undo: true });
  if (numbers.has(before[0][0])) current = numbers.get(before[0][0]);
  if (!inList(cards[current])) element("pair").value = "";
  show();
}

function submit(step) {
  (content.served ? pending : saved).push(step);
  replay();
  store.save();
}

const browserStore = {
  load() {
    try {
      const steps = JSON.parse(localStorage.getItem(content.key) || "[]");
      saved = Array.isArray(steps) ? steps.filter((step) => Array.isArray(step?.entries) && step.entries.every(Array.isArray)) : [];
    } catch {
      saved = [];
    }
    window.addEventListener("storage", (event) => {
      if (event.key !== content.key) return;
      saved = JSON.parse(event.newValue || "[]");
      replay();
      show();
    });
  },
  save() {
    try {
      localStorage.setItem(content.key, JSON.stringify(saved));
    } catch {
      report("This browser cannot store decisions. Export them before you close the page.");
    }
  },
};

const serverStore = {
  busy: false,
  async load() {
    await this.ask();
    setInterval(() => this.ask(), EVERY);
    document.addEventListener("visibilitychange", () => document.hidden || this.ask());
  },
  save() {
    this.ask();
  },
  async ask() {
    if (this.busy) return; // the request under way sends everything that is pending
    this.busy = true;
    try {
      do {
        const step = pending[0];
        const answer = step ? await post("steps", { ...step, since: saved.length }) : await get(`steps/${saved.length}`);
        if (step) pending.shift();
        saved.push(...answer.steps);
        if (answer.steps.length) replay();
        if (answer.steps.length && !step) show();
        if (lost || step) report(""); // a finish that failed stays on the page
        lost = false;
      } while (pending.length);
    } catch (error) {
      lost = error.refused !== true;
      if (!lost) {
        pending = []; // another try would be refused too
        replay();
        show();
      }
      const unsaved = pending.length ? ` Not saved: the last ${pending.length === 1 ? "decision" : `${pending.length} decisions`}.` : "";
      report(`${error.message}${unsaved}`);
    }
    this.busy = false;
  },
};

const store = content.served ? serverStore : browserStore;

async function answered(request) {
  let response;
  try {
    response = await request;
  } catch {
    throw new Error("The server does not answer. If the review is not finished, run the command below again: it opens a new page with all saved decisions.");
  }
  if (response.ok) return response.json();
  const { error } = await response.json().catch(() => ({}));
  throw Object.assign(new Error(error || "The server refused this page. Open the address that the command printed."), { refused: true });
}
const get = (path) => answered(fetch(path));
const post = (path, body) => answered(fetch(path, { method: "POST", body: body && JSON.stringify(body) }));
function report(sentence) {
  if (finished || element("problem").textContent === sentence) return; // it is read aloud once
  element("problem").hidden = !sentence;
  element("problem").textContent = sentence;
}

async function finish() {
  element("finish").disabled = true;
  report("");
  try {
    while (pending.length || serverStore.busy) {
      await serverStore.ask();
      await new Promise((resolve) => setTimeout(resolve, 20));
      if (!element("problem").hidden) return;
    }
    const answer = await post("finish");
    report("");
    finished = true;
    element("finished-summary").textContent = answer.summary;
    element("finished-file").textContent = answer.file;
    element("review").hidden = true;
    element("finished").hidden = false;
    element("finished").focus();
  } catch (error) {
    report(error.message);
  } finally {
    element("finish").disabled = false;
  }
}

const pairOf = (card) => `${card.given},${card.suggested}`;
const inList = (card) => !element("pair").value || pairOf(card) === element("pair").value;
const isUndecided = (card) => !decisionOn(card);

function listed() {
  const wanted = element("show").value;
  const matches = (card) => wanted !== "unsure" || decisionOn(card)?.[0] === "unsure";
  return cards.filter((card) => inList(card) && matches(card));
}

function gridCards() {
  const all = listed().filter((card) => element("show").value !== "undecided" || isUndecided(card));
  page = Math.max(0, Math.min(page, Math.ceil(all.length / TILES) - 1));
  return { all, shown: all.slice(page * TILES, (page + 1) * TILES) };
}

function nextUndecided() {
  const list = listed().filter(isUndecided);
  return (list.find((card) => card.number > current) || list[0] || cards[current]).number;
}

function move(step) {
  if (view === "grid") {
    page += step;
    unticked = new Set();
  } else {
    const list = listed();
    const later = step > 0 ? list.find((card) => card.number > current) : list.findLast((card) => card.number < current);
    if (later) current = later.number;
  }
  show();
}

function changeView(wanted) {
  view = wanted;
  page = 0;
  unticked = new Set();
  document.querySelector(`input[name="view"][value="${view}"]`).checked = true;
  if (view === "grid" && !element("pair").value && !pairWasChosen) {
    const left = pairs().find((pair) => pair.left);
    if (left) element("pair").value = left.key;
  }
  show();
}

function pairs() {
  const counts = new Map();
  for (const card of cards) {
    const pair = counts.get(pairOf(card)) || { key: pairOf(card), card, size: 0, left: 0 };
    pair.size += 1;
    pair.left += isUndecided(card);
    counts.set(pair.key, pair);
  }
  return [...counts.values()].sort((first, second) => second.size - first.size);
}

const RESERVED = "aknuzg";

function classKeys() {
  const keys = new Map();
  const wanted = (label) => (/^[0-9a-z]$/i.test(nameOf(label)) ? nameOf(label).toLowerCase() : null);
  const all = content.classes.map((_, label) => label);
  for (const label of all) {
    const key = wanted(label);
    if (key && !RESERVED.includes(key) && !keys.has(key)) keys.set(key, label);
  }
  const free = [..."1234567890bcdefhijlmopqrstvwxy"].filter((key) => !keys.has(key));
  for (const label of all) if (!wanted(label) && free.length) keys.set(free.shift(), label);
  return keys;
}
const keys = classKeys();
const keyOf = new Map([...keys].map(([key, label]) => [label, key]));
function matchingClasses() {
  const typed = element("filter").value.trim().toLowerCase();
  const all = content.classes.map((text, label) => ({ label, text: text.toLowerCase() }));
  const starts = all.filter(({ text }) => text.startsWith(typed));
  return [...starts, ...all.filter(({ text }) => !text.startsWith(typed) && text.includes(typed))].map(({ label }) => label);
}

function showClasses() {
  const labels = matchingClasses();
  element("classes").replaceChildren(
    ...labels.slice(0, SHOWN_CLASSES).map((label) => {
      const button = make("button", { type: "button" }, nameOf(label));
      button.dataset.label = label;
      if (keyOf.has(label)) button.prepend(make("kbd", {}, keyOf.get(label).toUpperCase()));
      button.addEventListener("click", () => choose(label));
      return button;
    })
  );
  const more = labels.length - SHOWN_CLASSES;
  element("more-classes").hidden = more <= 0 && labels.length > 0;
  element("more-classes").textContent = labels.length ? `${more} more: type to find them.` : "No class contains this.";
  markClasses();
}

function markClasses() {
  const decision = view === "single" ? decisionOn(cards[current]) : undefined;
  for (const button of element("classes").children) {
    const isChosen = decision?.[0] === "relabel" && decision[1] === nameOf(Number(button.dataset.label));
    button.setAttribute("aria-pressed", String(isChosen));
  }
}

function choose(label) {
  decide(chosenCards(), "relabel", label);
  element("filter").value = "";
  showClasses();
}
const chosenCards = () => (view === "single" ? [cards[current]] : gridCards().shown.filter((card) => !unticked.has(card.index)));

const details = new Map((content.details || []).map((card, number) => [number, card]));
const asked = new Set();
async function load(wanted) {
  const missing = wanted.filter((number) => number < cards.length && !details.has(number) && !asked.has(number)).slice(0, 64);
  if (!missing.length) return;
  missing.forEach((number) => asked.add(number));
  try {
    (await get(`details/${missing.join(",")}`)).forEach((card, place) => details.set(missing[place], card));
    if (missing.includes(current) || view === "grid") show();
  } catch (error) {
    report(error.message);
  } finally {
    missing.forEach((number) => asked.delete(number));
  }
}

function make(tag, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

const percent = (share) => (share > 0.99 ? "> 99 %" : `${Math.round(100 * share)} %`);
const count = (number) => number.toLocaleString("en");

function worded(decision) {
  if (!decision) return "";
  const [kind, label] = decision;
  return { relabel: `Relabelled: ${label}`, keep: "Kept: the given label is right", drop: "None of these: left out", unsure: "Unsure: nothing changes" }[kind];
}

function show() {
  showProgress();
  showPairs();
  element("single").hidden = view !== "single";
  element("grid").hidden = view !== "grid";
  element("facts").hidden = view !== "single";
  element("history").hidden = view !== "single" || content.by_features; // margins are of another model than the one that judges
  element("ticked").hidden = view !== "grid";
  if (view === "single") showCard();
  else showGrid();
  element("undo").disabled = !undoable.length;
  markClasses();
}

function showProgress() {
  const counts = { relabel: 0, keep: 0, drop: 0, unsure: 0 };
  for (const card of cards) if (decisionOn(card)) counts[decisionOn(card)[0]] += 1;
  const decided = Object.values(counts).reduce((sum, number) => sum + number, 0);
  const words = { relabel: "relabelled", keep: "kept", drop: "none of these", unsure: "unsure" };
  const made = Object.keys(words).filter((kind) => counts[kind]).map((kind) => `${count(counts[kind])} ${words[kind]}`).join(", ");
  const advice = decided < cards.length ? "" : content.served ? " All done: finish below." : " All done: export them below.";
  element("bar").max = cards.length;
  element("bar").value = decided;
  element("progress").textContent = `${count(decided)} of ${count(cards.length)} decided${made ? `: ${made}` : ""}.${advice}`;
}

function showPairs() {
  const left = cards.filter(isUndecided).length;
  const wanted = [["", `all pairs (${count(left)} left)`]];
  for (const pair of pairs().slice(0, PAIRS)) wanted.push([pair.key, `${nameOf(pair.card.given)} → ${nameOf(pair.card.suggested)} (${count(pair.left)} of ${count(pair.size)} left)`]);
  const chosen = element("pair").value;
  const options = element("pair").options;
  if (options.length !== wanted.length) element("pair").replaceChildren(...wanted.map(([value]) => make("option", { value })));
  wanted.forEach(([value, text], place) => {
    options[place].value = value;
    options[place].textContent = text;
  });
  element("pair").value = chosen;
}

function showCard() {
  const card = cards[current];
  const list = listed();
  const known = details.get(current);
  const place = list.indexOf(card);
  load([current, ...list.slice(place + 1, place + 5).map((next) => next.number)]);
  element("place").textContent = list.length ? `${place < 0 ? "–" : count(place + 1)} of ${count(list.length)}` : "No label matches.";
  element("name").textContent = known ? known.id : "";
  element("given").textContent = nameOf(card.given);
  element("suggested").textContent = nameOf(card.suggested);
  const basis = content.by_features ? "It is judged by models that did not see it." : `${percent(card.votes)} of the votes are for the suggestion.`;
  element("chances").textContent = `Wrong with a chance of ${percent(card.chance)}. ${basis}`;
  element("decision").textContent = worded(decisionOn(card));
  element("decision").dataset.decision = decisionOn(card)?.[0] || "";
  element("accept-text").textContent = `Relabel: ${nameOf(card.suggested)}`;
  element("keep-text").textContent = `Keep: ${nameOf(card.given)}`;
  showExample(known, card);
  draw(known ? known.margins : []);
}

function showExample(known, card) {
  const { values, neighbours, image } = known || { values: [], neighbours: [] };
  const places = [...values.keys()];
  const long = places.filter((place) => [values, ...neighbours.map((other) => other.values)].some((row) => (row[place]?.[1] ?? "").length > LONG));
  const pictured = neighbours.some((other) => other.image);
  element("figure").hidden = !image;
  if (image && element("image").getAttribute("src") !== image) element("image").src = image;
  element("image").alt = known ? `Example ${known.id}` : "";
  element("text").hidden = !long.length;
  element("text").replaceChildren(...long.flatMap((place) => [make("h2", {}, values[place][0]), make("p", { class: "text" }, values[place][1])]));
  const short = places.filter((place) => !long.includes(place));
  element("table").hidden = !short.length;
  if (short.length) element("table").replaceChildren(valuesTable(short, values, pictured ? [] : neighbours, card));
  element("missing").hidden = !known || Boolean(image || values.length);
  const shown = pictured || long.length ? neighbours : []; // the others are in the table
  element("similar").hidden = !shown.length;
  element("neighbours").replaceChildren(...shown.map((other) => neighbour(other, long)));
}

function neighbour(other, long) {
  const item = make("li");
  item.append(make("span", {}, nameOf(other.label)));
  if (other.image) item.prepend(make("img", { src: other.image, alt: "" }));
  else item.append(make("p", { class: "text" }, long.map((place) => other.values[place][1]).join("\n")));
  return item;
}

function valuesTable(places, values, neighbours, card) {
  const table = make("table", { class: "fields values" });
  if (neighbours.length) {
    const groups = make("tr");
    groups.append(make("td"), make("th", { scope: "col" }, "this example"), make("th", { scope: "colgroup", colspan: neighbours.length }, "most similar examples"));
    const labels = make("tr");
    labels.append(make("th", { scope: "row" }, "label"), make("td", {}, nameOf(card.given)), ...neighbours.map((other) => make("td", {}, nameOf(other.label))));
    labels.className = "labels-row";
    const head = make("thead");
    head.append(groups, labels);
    table.append(head);
  }
  const body = make("tbody");
  for (const place of places) {
    const [column, value] = values[place];
    const row = make("tr");
    row.append(make("th", { scope: "row" }, column), make("td", { class: "own" }, value), ...neighbours.map((other) => make("td", {}, other.values[place]?.[1] ?? "")));
    body.append(row);
  }
  table.append(body);
  return table;
}

function showGrid() {
  const { all, shown } = gridCards();
  load(shown.map((card) => card.number));
  const from = page * TILES;
  const again = document.activeElement?.closest?.("#tiles") ? document.activeElement.dataset.index : undefined;
  element("tiles").classList.toggle("rows", shown.some((card) => details.get(card.number)?.values.length));
  element("tiles").replaceChildren(...shown.map(tile));
  if (again !== undefined) (element("tiles").querySelector(`input[data-index="${again}"]`) || element("tiles").querySelector("input"))?.focus();
  element("grid-count").textContent = shown.length ? `${count(from + 1)} to ${count(from + shown.length)} of ${count(all.length)}` : "Nothing is left here. Choose other labels above.";
  element("tick").hidden = !shown.length;
  showTicked();
}

function showTicked() {
  const ticked = chosenCards();
  const targets = new Set(ticked.map((card) => card.suggested));
  const labels = new Set(ticked.map((card) => card.given));
  element("ticked").textContent = `${count(ticked.length)} ticked`;
  element("tick").textContent = unticked.size ? "Tick all" : "Untick all";
  element("accept-text").textContent = targets.size === 1 ? `Relabel: ${nameOf([...targets][0])}` : "Accept suggestions";
  element("keep-text").textContent = labels.size === 1 ? `Keep: ${nameOf([...labels][0])}` : "Keep given labels";
}

function tile(card) {
  const known = details.get(card.number);
  const item = make("li");
  const label = make("label", { class: "tile" });
  const box = make("input", { type: "checkbox", "aria-label": `Example ${known ? known.id : card.index}` });
  box.dataset.index = card.index;
  box.checked = !unticked.has(card.index);
  box.addEventListener("change", () => {
    if (box.checked) unticked.delete(card.index);
    else unticked.add(card.index);
    showTicked();
  });
  label.append(box);
  if (known?.image) label.append(make("img", { src: known.image, alt: "", loading: "lazy" }));
  else label.append(brief(known ? known.values : [["", "…"]]));
  if (!element("pair").value) label.append(make("span", { class: "pair" }, `${nameOf(card.given)} → ${nameOf(card.suggested)}`));
  label.append(make("span", { class: "about" }, worded(decisionOn(card)) || `${known ? known.id : ""} · ${percent(card.chance)}`));
  const open = make("button", { type: "button", class: "open", "aria-label": `Open example ${known ? known.id : card.index}` }, "Open");
  open.addEventListener("click", () => {
    current = card.number;
    changeView("single");
  });
  item.append(label, open);
  return item;
}

function brief(values) {
  const all = make("span", { class: "brief" });
  for (const [column, value] of values.filter(([, value]) => value)) {
    const line = make("span", { class: "cell" });
    if (values.length > 1) line.append(make("span", { class: "column" }, column), " ");
    line.append(value.length > LONG * 2 ? `${value.slice(0, LONG * 2)}…` : value);
    all.append(line);
  }
  return all;
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
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    drawing.append(part);
  }
}

function entries() {
  return cards.flatMap((card) => {
    const [decision, label] = decisionOn(card) || [];
    return decision ? [{ index: card.index, id: details.get(card.number).id, given_label: nameOf(card.given), decision, label: label ?? "" }] : [];
  });
}

function save(file, kind, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = file;
  link.click();
  URL.revokeObjectURL(link.href);
}

function asCsv() {
  const columns = ["index", "id", "given_label", "decision", "label"];
  const isFormula = (text) => /^'*[=+\-@\t\r]/.test(text) && !/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text);
  const cell = (value) => `"${isFormula(String(value)) ? "'" : ""}${String(value).replaceAll('"', '""')}"`; // as in lists of labels
  return [columns, ...entries().map((entry) => columns.map((column) => entry[column]))].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

const actions = {
  accept: () => decide(chosenCards(), "accept"),
  keep: () => decide(chosenCards(), "keep"),
  drop: () => decide(chosenCards(), "drop"),
  unsure: () => decide(chosenCards(), "unsure"),
  undo,
  back: () => move(-1),
  next: () => move(1),
  tick: () => {
    unticked = unticked.size ? new Set() : new Set(gridCards().shown.map((card) => card.index));
    show();
  },
  finish,
  "export-json": () => save("decisions.json", "application/json", JSON.stringify(entries(), null, 1) + "\n"),
  "export-csv": () => save("decisions.csv", "text/csv", asCsv()),
};
for (const [id, action] of Object.entries(actions)) element(id).addEventListener("click", action);
for (const radio of document.querySelectorAll('input[name="view"]')) radio.addEventListener("change", () => changeView(radio.value));
element("pair").addEventListener("change", () => {
  pairWasChosen = true;
  start();
});
element("show").addEventListener("change", start);
element("filter").addEventListener("input", showClasses);
element("image").addEventListener("load", (event) => event.target.classList.toggle("smooth", event.target.naturalWidth > 100));

function start() {
  page = 0;
  unticked = new Set();
  const list = listed();
  current = (list.find(isUndecided) || list[0] || cards[current]).number;
  show();
}

const named = { a: "accept", k: "keep", n: "drop", u: "unsure", z: "undo", ArrowLeft: "back", ArrowRight: "next" };
document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (target.id === "filter") return typed(event);
  if (event.ctrlKey || event.metaKey || event.altKey || finished) return;
  if (target.tagName === "SELECT" || (target.type === "radio" && event.key.startsWith("Arrow"))) return;
  if (event.key.startsWith("Arrow") && target.closest?.(".scroller, pre, #text")) return; // it scrolls
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = named[key];
  const label = keys.get(key);
  if (key === "/") element("filter").focus();
  else if (key === "g") changeView(view === "single" ? "grid" : "single");
  else if (!action && label === undefined) return;
  else if (event.repeat && action !== "back" && action !== "next"); // holding a key decides on one card only
  else if (action) actions[action]();
  else choose(label);
  event.preventDefault();
});

function typed(event) {
  if (event.key !== "Enter" && event.key !== "Escape") return;
  const [first] = matchingClasses();
  if (event.key === "Enter" && first !== undefined && element("filter").value) choose(first);
  event.preventDefault();
  element("filter").value = "";
  element("filter").blur();
  showClasses();
}

(async () => {
  for (const part of document.querySelectorAll(content.served ? ".served-only" : ".static-only")) part.hidden = false;
  element("filter").hidden = content.classes.length <= 10;
  await store.load();
  replay();
  showPairs();
  start();
  showClasses();
})();
