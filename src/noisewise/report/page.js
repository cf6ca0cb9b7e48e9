/*
 * The interactive parts of the page: the theme, the task picker, sorting and filtering, the charts and the film of margins.
 *
 * The document already contains all text and numbers; this script shows, hides, sorts and draws them. A chart is drawn when it
 * first comes into view, so that a page of a hundred runs opens fast. The script must not know how facts are gathered, and must
 * not insert text as markup.
 */

const page = document.documentElement;
const one = (selector, within = document) => within.querySelector(selector);
const every = (selector, within = document) => [...within.querySelectorAll(selector)];

/* The theme is that of the system until the button is pressed. */

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

function theme() {
  const chosen = page.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : systemIsDark.matches ? "dark" : "light";
}

function followTheme() {
  one("#theme .word").textContent = theme() === "dark" ? "Light" : "Dark";
  for (const plot of drawn.keys()) redraw(plot);
}

function toggleTheme() {
  page.dataset.theme = theme() === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("noisewise-theme", page.dataset.theme);
  } catch { /* no storage: the choice is lost when the page closes */ }
  followTheme();
}

/* Colours: plotly needs resolved colours, and those of the lines are chosen for a white background. */

const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);

function named(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

function channels(colour) {
  probe.style.color = "";
  probe.style.color = colour;
  return probe.style.color && getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
}

function luminance([red, green, blue]) {
  const [r, g, b] = [red, green, blue].map((level) => (level <= 10 ? level / 3294 : ((level / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/* Mix a dark colour with white until it is visible on a dark background. */
function onDark(colour) {
  const parts = channels(colour);
  if (!parts) return colour;
  let light = parts.slice(0, 3);
  while (luminance(light) < 0.22) light = light.map((level) => level + (255 - level) * 0.1);
  return `rgba(${[...light.map(Math.round), parts[3] ?? 1].join(", ")})`;
}

function recoloured(value) {
  if (Array.isArray(value)) return value.map(recoloured);
  if (value === null || typeof value !== "object") return value;
  const isColour = (key, entry) => /color$/.test(key) && typeof entry === "string";
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, isColour(key, entry) ? onDark(entry) : recoloured(entry)]));
}

/* Charts. */

const NARROW = 560; // width in pixels below which two panels do not fit side by side
const TITLE = 26; // height of a panel title in pixels
const CONFIG = { displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"] };
const figures = new Map(); // from the element of a plot to a function that returns its figure
const drawn = new Map(); // from the element of a plot to the size and theme of its last drawing

function dressedAxes(layout) {
  const lines = { gridcolor: named("edge"), linecolor: named("firm"), zerolinecolor: named("firm"), tickcolor: named("firm") };
  const axes = Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));
  return Object.fromEntries(axes.map((key) => [key, { automargin: true, ...layout[key], ...lines }]));
}

function dressed(layout, width, height) {
  const narrow = width < NARROW;
  const clear = "rgba(0, 0, 0, 0)";
  const font = { color: named("ink"), family: getComputedStyle(document.body).fontFamily };
  // The legend is above the panels if they are side by side, else below them.
  const position = narrow ? { yref: "container", y: 0, yanchor: "bottom" } : { y: 1 + TITLE / (height - 100), yanchor: "bottom" };
  return {
    ...layout,
    ...dressedAxes(layout),
    width,
    height,
    uirevision: "kept",
    dragmode: narrow ? false : "zoom",
    paper_bgcolor: clear,
    plot_bgcolor: clear,
    font: { ...font, size: narrow ? 12 : 13 },
    margin: narrow ? { l: 44, r: 12, t: TITLE, b: 44 } : { l: 60, r: 24, t: TITLE, b: 44 },
    legend: { orientation: "h", x: 0, xanchor: "left", bgcolor: clear, ...position },
    hoverlabel: { bgcolor: named("raised"), bordercolor: named("firm"), font, namelength: -1 },
    modebar: { bgcolor: clear, color: named("soft"), activecolor: named("accent") },
  };
}

/* Put the panels of two columns into one column, for narrow screens. */
function stacked(layout, panels) {
  const [height, gap] = [1 / panels.length, 0.34 / panels.length];
  panels.forEach(([xAxis, yAxis], index) => {
    const top = 1 - index * height;
    layout[xAxis] = { ...layout[xAxis], domain: [0, 1] };
    layout[yAxis] = { ...layout[yAxis], domain: [index === panels.length - 1 ? 0 : top - height + gap, top] };
  });
}

function fitted({ data, layout }, width) {
  const panels = layout.meta?.panels ?? [];
  if (width >= NARROW) return dressed(layout, width, layout.height ?? (panels.length ? 340 * Math.ceil(panels.length / 2) : 420));
  const listed = data.filter((trace) => trace.name && trace.showlegend !== false).length;
  const result = dressed(layout, width, (panels.length ? 290 * panels.length : 400) + 20 * listed);
  stacked(result, panels);
  return result;
}

function draw(plot, width = plot.clientWidth) {
  const figure = figures.get(plot)();
  drawn.set(plot, `${width} ${theme()}`);
  const data = theme() === "dark" ? recoloured(figure.data) : structuredClone(figure.data);
  Plotly.react(plot, data, fitted(figure, width), { ...CONFIG, displayModeBar: width < NARROW ? false : "hover" });
}

function redraw(plot) {
  if (plot.clientWidth && drawn.get(plot) !== `${plot.clientWidth} ${theme()}`) draw(plot);
}

const resized = new ResizeObserver((entries) => requestAnimationFrame(() => entries.forEach(({ target }) => redraw(target))));

const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) {
      seen.unobserve(target);
      figures.get(target).ready?.();
      drawn.set(target, "");
      resized.observe(target);
    }
  }
}, { rootMargin: "200px" });

function drawWhenSeen(plot, figure) {
  figures.set(plot, figure);
  seen.observe(plot);
}

/* For printing, use the light theme and a narrow width, and draw charts that were never scrolled into view. */
const PAPER = 640;
let onScreen;

function print() {
  onScreen = page.dataset.theme ?? "system";
  page.dataset.theme = "light";
  for (const plot of figures.keys()) {
    if (!plot.clientWidth) continue; // the task is hidden
    if (!drawn.has(plot)) figures.get(plot).ready?.();
    draw(plot, PAPER);
  }
}

function printed() {
  page.dataset.theme = onScreen;
  for (const plot of drawn.keys()) redraw(plot);
}

const embeddedJson = (within) => JSON.parse(one("script", within).textContent);

function chart(element) {
  let figure;
  drawWhenSeen(one(".plot", element), () => (figure ??= embeddedJson(element)));
}

/* The film: the margins of one run, epoch by epoch, on fixed axes. */

const GROUPS = { clean: ["clean: label right", "clean"], noisy: ["noisy: label wrong", "noisy"], all: ["all examples", "accent"] };
const PACE = 120; // milliseconds per frame
const shorter = (number) => number.toFixed(1).replace("-", "−");

/* The median of binned margins, which are assumed to be uniform inside a bin. */
function median(edges, counts) {
  const half = total(counts) / 2;
  if (!half) return null;
  let below = 0;
  const bin = counts.findIndex((count) => (below += count) >= half && count > 0);
  const share = 1 - (below - half) / counts[bin];
  return edges[bin] + share * (edges[bin + 1] - edges[bin]);
}

function histogram({ edges, counts }, group, frame) {
  const [name, colour] = GROUPS[group];
  const heights = counts[group][frame];
  return {
    type: "scatter",
    mode: "lines",
    name,
    x: edges,
    y: [...heights, heights.at(-1)],
    customdata: edges.map((edge, bin) => `${shorter(edge)} to ${shorter(edges[Math.min(bin + 1, edges.length - 1)])}`),
    hovertemplate: "margin %{customdata}: %{y:,} examples",
    line: { shape: "hv", width: 1.5, color: named(colour) },
    fill: "tozeroy",
    fillcolor: named(colour).replace("rgb(", "rgba(").replace(")", ", 0.3)"),
  };
}

function pull({ margins, values }, frame) {
  return {
    type: "scatter",
    mode: "lines",
    name: "emphasis",
    x: margins,
    y: values[Math.min(frame, values.length - 1)],
    yaxis: "y2",
    hovertemplate: "emphasis %{y:.3g}",
    line: { width: 2.5, color: named("ink") },
  };
}

const total = (counts) => counts.reduce((sum, count) => sum + count, 0);
const groupsOf = (film) => Object.keys(GROUPS).filter((group) => film.counts[group]?.some(total));
const peak = (film, frame) => Math.max(0, ...groupsOf(film).flatMap((group) => film.counts[group][frame]));

/* The top of the axis. Margins start in one high peak, which may be cut off, so that the lower histograms of later epochs are visible. */
function ceiling(film) {
  const peaks = film.epochs.map((_, frame) => peak(film, frame)).sort((a, b) => a - b);
  return Math.min(1.04 * peaks.at(-1), 2.5 * peaks[Math.floor(peaks.length / 2)]);
}

function filmFigure(film, frame) {
  const data = groupsOf(film).map((group) => histogram(film, group, frame));
  const layout = {
    hovermode: "x",
    showlegend: true,
    xaxis: { title: { text: "Δ, the margin of the given label" }, range: [film.edges[0], film.edges.at(-1)], zeroline: true, zerolinewidth: 2 },
    yaxis: { title: { text: "examples" }, range: [0, ceiling(film)], zeroline: false },
  };
  if (film.emphasis) {
    const range = [0, 1.08 * Math.max(...film.emphasis.values.flat())];
    data.push(pull(film.emphasis, frame));
    layout.yaxis2 = { title: { text: "emphasis w" }, overlaying: "y", side: "right", tickmode: "auto", showgrid: false, zeroline: false, range };
  }
  return { data, layout };
}

function reading(film, frame) {
  const medians = groupsOf(film).map((group) => [GROUPS[group][0], median(film.edges, film.counts[group][frame])]);
  const texts = medians.filter(([, margin]) => margin !== null).map(([name, margin]) => `${name}, ${shorter(margin)}`);
  if (!texts.length) return "No example was seen in this epoch.";
  const highest = peak(film, frame);
  const cut = highest > ceiling(film) ? ` The highest bar, of ${highest.toLocaleString("en")} examples, runs off the chart.` : "";
  return `Median margin: ${texts.join("; ")}.${cut}`;
}

function projector(element) {
  const [plot, select, slider, button] = [".plot", "select", "input", ".play"].map((selector) => one(selector, element));
  const [now, words] = [one(".now", element), one("figcaption", element)];
  let films;
  let timer = null;
  const film = () => films[Number(select.value)];
  const frame = () => Number(slider.value);

  function showEpoch() {
    const { epochs } = film();
    now.value = `epoch ${epochs[frame()]} of ${epochs.at(-1)}`;
    slider.setAttribute("aria-valuetext", now.value);
    words.textContent = reading(film(), frame());
  }

  function show(frameIndex) {
    slider.value = frameIndex;
    showEpoch();
    draw(plot);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    one(".sign", button).textContent = "▶";
    one(".word", button).textContent = "Play";
  }

  function advance() {
    if (frame() >= Number(slider.max) || !plot.clientWidth) stop();
    else show(frame() + 1);
  }

  function play() {
    if (frame() >= Number(slider.max)) show(0);
    one(".sign", button).textContent = "❚❚";
    one(".word", button).textContent = "Pause";
    timer = setInterval(advance, PACE);
  }

  /* Show another run at the nearest epoch, so that losses can be compared by switching between them. */
  function change() {
    const epoch = Number(slider.dataset.epoch ?? Infinity);
    const { epochs } = film();
    const distances = epochs.map((other) => Math.abs(other - epoch));
    slider.max = epochs.length - 1;
    show(epoch === Infinity ? 0 : distances.indexOf(Math.min(...distances)));
  }

  const figure = () => {
    slider.dataset.epoch = film().epochs[frame()];
    return filmFigure(film(), frame());
  };
  figure.ready = () => {
    films = embeddedJson(element);
    slider.max = film().epochs.length - 1;
    showEpoch();
  };
  select.addEventListener("change", change);
  slider.addEventListener("input", () => { stop(); show(frame()); });
  button.addEventListener("click", () => (timer === null ? play() : stop()));
  drawWhenSeen(plot, figure);
}

/* Tables are sorted by clicking a heading, and filtered by words and by task. */

const compareWords = new Intl.Collator(undefined, { numeric: true }).compare;

function sort(table, column, head) {
  const descending = head.getAttribute("aria-sort") === "ascending";
  every("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const numeric = head.classList.contains("number");
  const rows = every("tbody tr", table).map((row) => [row, row.cells[column].dataset.value]);
  const present = rows.filter(([, value]) => value !== "");
  present.sort(([, a], [, b]) => (descending ? -1 : 1) * (numeric ? a - b : compareWords(a, b)));
  one("tbody", table).append(...[...present, ...rows.filter(([, value]) => value === "")].map(([row]) => row));
}

function sortable(table) {
  every("thead th", table).forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(table, column, head));
    head.append(button);
  });
}

const pickedTask = () => page.dataset.task ?? "all";
const ofTask = (task) => task === "" || pickedTask() === "all" || task === pickedTask();

function filterRows() {
  const view = one("input[name=view]:checked").value;
  const words = one("#filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const box of every("[data-view]")) box.hidden = box.dataset.view !== view;
  const rows = every(`[data-view=${view}] tbody tr`);
  const candidates = rows.filter((row) => ofTask(row.dataset.of));
  const matching = candidates.filter((row) => words.every((word) => row.dataset.words.toLowerCase().includes(word)));
  for (const row of rows) row.hidden = !matching.includes(row);
  one("#shown").value = `${matching.length} of ${candidates.length} shown`;
  one("#none-shown").hidden = matching.length > 0 || candidates.length === 0;
}

function pick(task) {
  page.dataset.task = task;
  for (const block of every("[data-task]", document.body)) block.hidden = !ofTask(block.dataset.task);
  filterRows();
}

/* Doubtful examples are filtered by given or suggested class; only the first few are shown until the button is clicked. */

const FEW = 12;

function doubtful(block) {
  const [select, button, count] = [".class", ".more", ".count"].map((selector) => one(selector, block));
  const examples = every("[data-classes]", block);
  let shown = FEW;
  const show = () => {
    const hasClass = ({ dataset }) => select.value === "" || JSON.parse(dataset.classes).includes(select.value.slice(1));
    const matching = examples.filter(hasClass);
    const visible = new Set(matching.slice(0, shown));
    for (const example of examples) example.hidden = !visible.has(example);
    count.value = `${visible.size} of ${examples.length} shown`;
    button.hidden = visible.size === matching.length;
    button.textContent = `Show all ${matching.length}`;
  };
  select.addEventListener("change", show);
  button.addEventListener("click", () => { shown = Infinity; show(); });
  show();
}

/* Commands. */

async function copy(button) {
  const text = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(text.textContent);
  } catch { // pages opened from a file have no clipboard API
    getSelection().selectAllChildren(text);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

function start() {
  one("#theme").addEventListener("click", toggleTheme);
  systemIsDark.addEventListener("change", followTheme);
  addEventListener("beforeprint", print);
  addEventListener("afterprint", printed);
  followTheme();
  every("table.results").forEach(sortable);
  every("input[name=view]").forEach((choice) => choice.addEventListener("change", filterRows));
  one("#filter").addEventListener("input", filterRows);
  const picker = one("#task");
  picker?.addEventListener("change", () => pick(picker.value));
  for (const link of every("[data-pick]")) {
    link.addEventListener("click", () => pick((picker.value = link.dataset.pick)));
  }
  for (const link of every("a[href^='#run-']")) {
    link.addEventListener("click", () => { one(link.getAttribute("href")).open = true; });
  }
  pick(picker?.value ?? "all");
  every(".doubt:has(.class)").forEach(doubtful);
  every(".copy").forEach((button) => button.addEventListener("click", () => copy(button)));
  every(".chart").forEach(chart);
  every(".film").forEach(projector);
}

start();
