// Live page of a server: requests `state` each second and shows it.
//
// /openapi.json describes the fields of the state. A model whose file could not be opened has only
// name, ready and error. Text from the server is inserted as text, never as markup.

const POLL = 1000; // milliseconds
const MAX_WAIT = 30000;
const TIMEOUT = 10000;
const MAX_ROWS = { refused: 12, snapshots: 12, drift: 12, sources: 12, inputs: 100 };
const MAX_COMPARED = 4;
const MAX_TEXT = 300; // characters in a table
const NONE = "–";
const ABSENT = {
  class: "", parameters: "",
  prequential_error: { name: "error", all: null, window: null, r2: null, baseline: {}, curve: [] },
  rates: { curve: [] }, latency: { learn: {}, predict: {} }, drift: [], refused: [], snapshots: [],
  detectors: {}, positions: {},
};

// -- formats --------------------------------------------------------------------------------------

function numbers(options) {
  const format = new Intl.NumberFormat("en-US", options);
  return (x) => (Number.isFinite(x) ? format.format(x).replaceAll("-", "−").replace("E", "e") : NONE);
}

const count = numbers({ maximumFractionDigits: 0 });
const three = numbers({ minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
const four = numbers({ minimumSignificantDigits: 4, maximumSignificantDigits: 4 });
const compact = numbers({ notation: "compact", maximumSignificantDigits: 4 });
const scientific = numbers({ notation: "scientific", maximumSignificantDigits: 4 });
const ages = new Intl.RelativeTimeFormat("en", { style: "narrow" });
const moments = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "long" });
const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const DAY = 86400;
const AGES = [[DAY, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
const SIZES = ["bytes", "KiB", "MiB", "GiB", "TiB"];

const extreme = (x) => x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6);
const amount = (x) => (extreme(x) ? scientific(x) : four(x));
const rate = (x) => (x === 0 || x >= 99.95 ? count(x) : three(x));
const tick = (x) => (x !== 0 && Math.abs(x) < 1e-4 ? scientific(x) : compact(x));
const moment = (at) => moments.format(new Date(at * 1000));
const timeOfDay = (at) => new Date(at * 1000).toTimeString().slice(0, 8);

function duration(seconds) {
  if (!Number.isFinite(seconds)) return NONE;
  if (seconds >= 0.9995) return `${three(seconds)} s`;
  return seconds >= 9.995e-4 ? `${three(seconds * 1e3)} ms` : `${three(seconds * 1e6)} µs`;
}

function size(bytes) {
  if (!Number.isFinite(bytes)) return NONE;
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), SIZES.length - 1);
  return `${power ? three(bytes / 1024 ** power) : count(bytes)} ${SIZES[power]}`;
}

function ago(seconds) {
  const [unit, name] = AGES.find(([unit]) => Math.abs(seconds) >= unit) ?? [1, ""];
  return name ? ages.format(-Math.trunc(seconds / unit), name) : "now";
}

/** Describe each model by its class and the parameters in which models of that class differ. */
function describe(models) {
  const all = models.map((model) => separate(model.parameters));
  return models.map((model, i) => {
    const alike = all.filter((_, j) => models[j].class === model.class);
    const own = all[i].filter((each) => !alike.every((parameters) => parameters.includes(each)));
    return own.length ? `${model.class} · ${own.join(", ").replaceAll("(", "(\u200b")}` : model.class;
  });
}

/** Split parameters at commas outside brackets. */
function separate(parameters) {
  const parts = [""];
  let depth = 0;
  for (const letter of parameters) {
    depth += "([{".includes(letter) - ")]}".includes(letter);
    if (letter === "," && depth === 0) parts.push("");
    else parts.push(parts.pop() + letter);
  }
  return parts.map((each) => each.trim()).filter(Boolean);
}

// -- elements -------------------------------------------------------------------------------------

const find = (id) => document.getElementById(id);

/** Set the text of an element, passed as node or id, if it has changed. */
function put(at, text) {
  const node = typeof at === "string" ? find(at) : at;
  if (node.textContent !== text) node.textContent = text;
}

/** Set attributes that have changed; null removes an attribute. */
function mark(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
  return node;
}

function reveal(id, shown) {
  if (find(id).hidden === shown) find(id).hidden = !shown;
}

function make(tag, attributes = {}, ...children) {
  const node = mark(document.createElement(tag), attributes);
  node.append(...children);
  return node;
}

function draw(tag, attributes = {}, ...children) {
  const node = mark(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes);
  node.append(...children);
  return node;
}

/** A table cell: its class, and its parts, one element each; `head` makes it the row header. */
const cell = (kind, ...parts) => ({ kind, parts });
const number = (text) => cell("number", { text });
const whole = (x) => number(count(x));
const head = (each) => ({ ...each, head: true });
const when = (at) => cell("when", {
  tag: "time", text: ago(clock() - at), title: moment(at), datetime: new Date(at * 1000).toISOString(),
});

function words(text, kind = "data") {
  const title = text.length > MAX_TEXT ? text : null;
  const shown = title ? `${text.slice(0, MAX_TEXT)}…` : text;
  return cell(text.length <= 20 ? `${kind} short` : kind, { text: shown, title });
}

/** Fill a table with rows of cells, or with the text `none`; unchanged nodes are reused. */
function fill(name, rows, none = "") {
  const body = find(`${name}-rows`);
  const shown = rows.length ? rows.slice(0, MAX_ROWS[name] ?? rows.length) : [[cell("", { text: none })]];
  while (body.rows.length > shown.length) body.lastChild.remove();
  shown.forEach((cells, i) => {
    const row = body.rows[i] ?? body.insertRow();
    if (row.cells.length !== cells.length) {
      const nodes = cells.map((each) => (each.head ? make("th", { scope: "row" }) : make("td")));
      row.replaceChildren(...nodes);
    }
    mark(row, { class: rows.length ? (cells.kind ?? null) : "none" });
    mark(row.cells[0], { colspan: rows.length ? null : 9 });
    cells.forEach((each, k) => write(row.cells[k], each));
  });
  if (MAX_ROWS[name]) put(`${name}-more`, rows.length > shown.length ? `${shown.length} of ${rows.length}` : "");
}

function write(node, { kind, parts }) {
  mark(node, { class: kind || null });
  parts.forEach(({ tag = "span", text = "", checked, ...attributes }, i) => {
    if (node.children.length <= i) node.append(make(tag));
    put(node.children[i], text);
    mark(node.children[i], attributes);
    if (checked !== undefined) node.children[i].checked = checked;
  });
}

// -- charts ---------------------------------------------------------------------------------------

const MIN_DRAG = 8; // pixels
const LETTER = 6.6; // width of a digit of axis labels, in pixels
const [ABOVE, RIGHT, BELOW] = [10, 16, 20];
const MAX_LINES = 24; // vertical lines of marks; more would hide the curves
const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  ...[1, 2, 4, 7, 14, 30, 60, 120, 240, 365].map((days) => days * DAY),
];

function multiples(low, high, step) {
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/**
 * A vertical axis for numbers >= 0: its ticks, and a function that maps a number to [0, 1].
 * The axis is logarithmic if the largest number is at least 50 times the smallest.
 */
function level(values, max) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low > 0 && high / low >= 50) {
    const [first, last] = [Math.log10(low), Math.log10(high)];
    const every = Math.max(1, Math.ceil((last - first) / max));
    const within = last - first < 3 ? [1, 2, 5] : [1];
    const ticks = multiples(Math.floor(first), Math.ceil(last), every)
      .flatMap((power) => within.map((each) => each * 10 ** power))
      .filter((each) => each >= low && each <= high);
    return { log: true, ticks, place: (x) => (Math.log10(x) - first) / (last - first) };
  }
  if (low < 0.6 * high) low = 0;
  if (high - low <= 1e-9 * high || high === 0) [low, high] = [0, 2 * high || 1];
  const power = 10 ** Math.floor(Math.log10((high - low) / max));
  const step = power * [1, 2, 5, 10].find((each) => each * power * max >= 0.999 * (high - low));
  [low, high] = [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
  return { log: false, ticks: multiples(low, high, step), place: (x) => (x - low) / (high - low) };
}

/** Round local times within a time span, each as number and label. */
function timeTicks(first, last, max) {
  const step = TIME_STEPS.find((each) => each * max >= last - first) ?? TIME_STEPS.at(-1);
  const zone = new Date(first * 1000).getTimezoneOffset() * 60;
  const label = (at) => {
    const time = timeOfDay(at);
    if (step >= DAY || time === "00:00:00") return days.format(new Date(at * 1000));
    return step < 60 ? time : time.slice(0, 5);
  };
  const found = multiples(first - zone, last - zone, step).map((at) => at + zone);
  return found.map((at) => [at, label(at)]);
}

/** SVG path through points in pixels, interrupted at nulls; an isolated point is a dot. */
function path(xs, ys) {
  const part = (x, i) => {
    if (ys[i] === null) return "";
    const at = `${x.toFixed(1)} ${ys[i].toFixed(1)}`;
    return (ys[i - 1] ?? null) === null ? `M${at}h0` : `L${at}`;
  };
  return xs.map(part).join("");
}

const nearest = (xs, x) =>
  xs.reduce((best, each, i) => (Math.abs(each - x) < Math.abs(xs[best] - x) ? i : best), 0);

/** Curves over time in a figure, with a cursor for pointer and keyboard. */
class Chart {
  constructor(id, { name, names, format, heading = "" }) {
    Object.assign(this, { name, names, format, chosen: null, xs: [], curves: [], others: [], marks: [] });
    this.readout = make("p", { class: "readout number" });
    this.scale = make("span", { class: "scale" });
    this.empty = make("p", { class: "empty" }, "No data yet.");
    const slider = { type: "range", class: "unseen", min: 0, step: 1, "aria-label": `${name}: point` };
    this.cursor = make("input", slider);
    this.svg = draw("svg", { role: "img" });
    this.plot = make("div", { class: "plot" }, this.cursor, this.svg, this.empty);
    const caption = make("figcaption", {}, make("span", {}, heading), this.scale, this.readout);
    find(id).append(caption, this.plot);
    const point = (event) => {
      const x = event.clientX - this.svg.getBoundingClientRect().left;
      if (this.places) this.look(nearest(this.places, x));
    };
    for (const each of ["pointermove", "pointerdown"]) this.plot.addEventListener(each, point);
    for (const each of ["input", "focus"]) {
      this.cursor.addEventListener(each, () => this.look(Number(this.cursor.value)));
    }
    this.plot.addEventListener("pointerleave", () => this.look(null));
    this.cursor.addEventListener("blur", () => this.look(null));
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  /** Call `select` with the times of a drag of the mouse, and with null on a double click. */
  selectable(select) {
    const band = draw("rect", { class: "band", y: ABOVE });
    let from = null;
    const x = (event) => event.clientX - this.svg.getBoundingClientRect().left;
    this.plot.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button !== 0 || !this.places) return;
      from = x(event);
      this.plot.setPointerCapture(event.pointerId);
    });
    this.plot.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const [left, right] = [from, x(event)].toSorted((a, b) => a - b);
      mark(band, { x: left, width: right - left, height: Math.max(0, this.floor - ABOVE) });
      if (right - left >= MIN_DRAG) this.svg.append(band);
    });
    for (const each of ["pointerup", "pointercancel"]) {
      this.plot.addEventListener(each, (event) => {
        const times = [from, x(event)].toSorted((a, b) => a - b).map((place) => this.timeAt?.(place));
        if (from !== null && band.isConnected && each === "pointerup") select(times);
        band.remove();
        from = null;
      });
    }
    this.plot.addEventListener("dblclick", () => select(null));
  }

  /**
   * Show `curves` over the ascending times `xs`, in seconds since 1970; `marks`: [time, name];
   * `others`: curves with a name, the index of a colour, and times of their own.
   */
  show(xs, curves, { marks = [], label = moment, others = [] } = {}) {
    const now = JSON.stringify([xs, curves, marks, others]);
    if (now === this.shown) return;
    const at = this.chosen === null ? null : this.xs[this.chosen];
    Object.assign(this, { xs, curves, others, label, shown: now });
    this.marks = marks.filter(([x]) => x >= xs[0] && x <= xs.at(-1));
    this.chosen = at === null || !xs.length ? null : nearest(xs, at);
    this.draw();
  }

  /** Move the cursor to a point; null removes it, and the readout shows the last point. */
  look(chosen) {
    const last = this.xs.length - 1;
    const at = chosen === null ? last : Math.min(chosen, last);
    this.chosen = chosen === null || last < 0 ? null : at;
    const values = this.curves.map((ys, k) => `${this.names[k]} ${this.format(ys[at])}`.trim());
    const read = last < 0 ? [] : [this.label(this.xs[at], at), ...values];
    const keys = read.map((each, k) => [each, k && values.length > 1 ? `key c${k - 1}` : ""]);
    for (const { name, colour, xs, ys } of last < 0 ? [] : this.others) {
      const value = this.format(ys[nearest(xs, this.xs[at])]);
      keys.push([`${name} ${value}`, `key data o${colour}`]);
      read.push(`${name} ${value}`);
    }
    if (this.marks.length) keys.push(["drift", "key mark"]);
    if (this.read !== JSON.stringify(keys)) {
      this.read = JSON.stringify(keys);
      this.readout.replaceChildren(...keys.map(([each, kind]) => make("span", { class: kind }, each)));
    }
    this.cursor.disabled = last < 0;
    this.cursor.max = Math.max(last, 0);
    this.cursor.value = Math.max(at, 0);
    mark(this.cursor, { "aria-valuetext": read.join(", ") });
    const marks = this.marks.slice(-3).map(([, name]) => name);
    mark(this.svg, { "aria-label": [`${this.name}: ${read[0] ?? "no data yet"}`, ...read.slice(1), ...marks].join(", ") });
    this.svg.querySelector(".cross")?.remove();
    if (this.chosen === null || !this.places) return;
    const x = this.places[at].toFixed(1);
    const dots = this.levels.map((ys, k) => [ys[at], k]).filter(([y]) => y !== null);
    this.svg.append(draw("g", { class: "cross" },
      draw("line", { x1: x, x2: x, y1: ABOVE, y2: this.floor }),
      ...dots.map(([y, k]) => draw("circle", { cx: x, cy: y, r: 3, class: `dot c${k}` }))));
  }

  draw() {
    const { width, height } = this.plot.getBoundingClientRect();
    this.places = null;
    this.empty.hidden = this.xs.length > 0;
    mark(this.svg, { viewBox: `0 0 ${Math.max(width, 1)} ${Math.max(height, 1)}` });
    this.svg.replaceChildren();
    const values = [...this.curves, ...this.others.map(({ ys }) => ys)].flat().filter((each) => each !== null);
    if (values.length && width > 60 && height > 40) this.compose(width, height, values);
    this.look(this.chosen);
  }

  compose(width, height, values) {
    const y = level(values, Math.max(2, Math.floor(height / 44)));
    const left = Math.max(...y.ticks.map((each) => tick(each).length), 3) * LETTER + 8;
    const [first, end] = [this.xs[0], this.xs.at(-1)];
    const last = Math.max(end, first + 1);
    this.floor = height - BELOW;
    const across = (x) => left + ((x - first) / (last - first)) * (width - left - RIGHT);
    const up = (value) => this.floor - y.place(value) * (this.floor - ABOVE);
    this.timeAt = (x) => first + ((x - left) / (width - left - RIGHT)) * (last - first);
    this.places = this.xs.map(across);
    this.levels = this.curves.map((ys) => ys.map((each) => (each === null ? null : up(each))));
    const axes = draw("g", { class: "axis" });
    for (const each of y.ticks) {
      const at = up(each).toFixed(1);
      axes.append(draw("line", { x1: left, x2: width - RIGHT, y1: at, y2: at }),
        draw("text", { x: left - 6, y: at, dy: "0.32em", class: "y" }, tick(each)));
    }
    const ticks = timeTicks(first, last, Math.max(2, Math.floor((width - left) / 76)));
    for (const [each, label] of ticks) {
      const at = across(each).toFixed(1);
      axes.append(draw("line", { x1: at, x2: at, y1: this.floor, y2: this.floor + 4 }),
        draw("text", { x: at, y: this.floor + 16, class: "x" }, label));
    }
    const marks = this.marks.map(([x, name]) => {
      const at = across(x).toFixed(1);
      return draw("g", { class: "mark" }, draw("title", {}, name),
        draw("path", { d: `M${at} ${ABOVE}l-4 -7h8z`, class: "flag" }),
        ...(this.marks.length > MAX_LINES ? [] : [draw("path", { d: `M${at} ${ABOVE}V${this.floor}` })]));
    });
    const lines = this.levels.map((ys, k) => draw("path", { class: `line c${k}`, d: path(this.places, ys) }));
    const others = this.others.map(({ colour, xs, ys }) => draw("path", {
      class: `line o${colour}`, d: path(xs.map(across), ys.map((each) => (each === null ? null : up(each)))),
    }));
    this.svg.append(axes, ...marks, ...others, ...lines.reverse()); // the first curve on top
    put(this.scale, y.log ? "log scale" : "");
  }
}

// -- models ---------------------------------------------------------------------------------------

const perSecond = (x) => `${rate(x)} rows/s`;
const charts = {
  error: new Chart("error-chart", { name: "Prequential error", names: ["window", "all rows", "baseline"], format: amount }),
  learned: new Chart("learned-chart",
    { name: "Rows learned per second", names: [""], format: perSecond, heading: "Learned" }),
  predicted: new Chart("predicted-chart",
    { name: "Rows predicted per second", names: [""], format: perSecond, heading: "Predicted" }),
};

function chip(model) {
  if (model.error) return { text: "problem", class: "chip", "data-state": "bad" };
  if (model.ready) return { text: "ready", class: "chip", "data-state": "good" };
  return { text: "not ready", class: "chip", "data-state": "wait" };
}

function showModel(model) {
  const { prequential_error: error, rates, latency } = model;
  const last = error.window_rows ? `, last ${count(error.window_rows)} rows` : "";
  const { text, ...state } = chip(model);
  mark(find("state"), state);
  reveal("problem", Boolean(model.error));
  const texts = {
    name: model.name, state: text, problem: model.error ?? "",
    made: model.class && `${model.class}(${model.parameters})`,
    "error-name": `Prequential ${error.name}`, "error-window-of": error.name + last,
    "error-window": amount(error.window), "error-all": `${amount(error.all)} over all rows`,
    "baseline-window": amount(error.baseline.window), r2: three(error.r2),
    "baseline-all": `${amount(error.baseline.all)} over all rows`,
    "baseline-name": `baseline${error.baseline.name ? `: ${error.baseline.name}` : ""}`,
    "rows-seen": count(model.rows_seen), version: `version ${count(model.version)}`,
    learned: rate(rates.learned), predicted: rate(rates.predicted), memory: size(model.nbytes),
    "labels-pending": count(model.labels_pending), "rows-refused": count(model.rows_refused),
  };
  for (const [id, shown] of Object.entries(texts)) put(id, shown);
  reveal("r2-figure", error.r2 !== null);
  showCurves(model);
  fill("latency", ["learn", "predict"].map((verb) => [
    head(words(verb)), number(duration(latency[verb].p50)), number(duration(latency[verb].p99)),
  ]));
  fill("refused", model.refused.map((each) => [
    when(each.at), { ...when(each.first), kind: "when mid" }, cell("number", { text: count(each.rows), title: `refused ${count(each.times)} times` }), words(each.why),
  ]), "No rows were refused.");
  showSnapshots(model);
  if (find("inputs").open && described !== model.name) describeInputs(model.name);
  fill("drift", model.drift.toReversed().map((each) => [
    whole(each.rows), when(each.at), words(each.detector),
  ]), Object.keys(model.detectors).length ? "No alarm yet." : "No drift detector. Start the server with one, such as --drift adwin.");
  fill("sources", Object.entries(model.positions).map(([source, position]) => [
    head(words(source, "data code")), words(position ?? "no row learned yet", "data code"),
  ]), "No source. Rows are learned from requests only.");
}

const timed = (model) => model.prequential_error.curve.filter(([, , , at]) => at !== null); // points of former versions have no time

function showCurves(model) {
  const points = timed(model);
  const latest = points.at(-1)?.[3] ?? 0;
  const [from, to] = selected ?? [latest - Number(find("span").value), latest];
  const within = ([, , , at]) => at >= from && at <= to;
  const curve = points.filter(within);
  const values = (find("with-baseline").checked ? [2, 1, 4] : [2, 1]).map((k) => curve.map((point) => point[k] ?? null));
  const drawn = (at) => at >= curve[0]?.[3] && at <= curve.at(-1)[3];
  const others = overlaid().map((each) => {
    const theirs = timed(each).filter(([, , , at]) => drawn(at));
    const [xs, ys] = [3, 2].map((k) => theirs.map((point) => point[k]));
    return { name: each.name, colour: compared.get(each.name), xs, ys };
  });
  put(charts.error.empty, points.length ? "No data in this time." : "No data yet.");
  charts.error.show(curve.map(([, , , at]) => at), values, {
    marks: model.drift.map((each) => [each.at, `drift at row ${count(each.rows)}`]),
    label: (at, i) => `${moment(at)}, row ${count(curve[i][0])}`,
    others: others.filter(({ xs }) => xs.length),
  });
  reveal("span", points.length > 0);
  const rates = model.rates.curve;
  const seconds = rates.map(([back]) => Math.round(server.now) - back);
  const label = timeOfDay;
  charts.learned.show(seconds, [rates.map(([, learned]) => learned)], { label });
  charts.predicted.show(seconds, [rates.map(([, , predicted]) => predicted)], { label });
}

const address = (name) => `#model=${encodeURIComponent(name)}`;

/** Whether the recent error of another model can be drawn in the chart of the chosen model. */
function comparable(model, own = models[chosen()]) {
  return model.name !== own.name && Boolean(model.class) && model.prequential_error.name === own.prequential_error.name;
}

const overlaid = () => models.filter((model) => compared.has(model.name) && comparable(model));

function compare(name, shown) {
  const free = [...Array(MAX_COMPARED).keys()].find((k) => ![...compared.values()].includes(k));
  if (shown) compared.set(name, free);
  else compared.delete(name);
  refresh();
  show();
}

function showOverview(chosen) {
  reveal("models", models.length > 1);
  const all = describe(models);
  fill("models", models.map((model, i) => {
    const { name, prequential_error: error, rates } = model;
    const current = i === chosen ? "true" : null;
    const link = { tag: "a", text: name, class: "data", href: address(name), "aria-current": current };
    const wide = [rate(rates.predicted), size(model.nbytes), count(model.labels_pending), count(model.rows_refused)];
    const box = {
      tag: "input", type: "checkbox", value: name, "aria-label": `Compare ${name}`, checked: compared.has(name),
      hidden: current && "", class: compared.has(name) ? `o${compared.get(name)}` : null,
      disabled: comparable(model, models[chosen]) && (compared.has(name) || compared.size < MAX_COMPARED) ? null : "",
    };
    const cells = [
      head(cell("", link, { text: all[i].slice(0, MAX_TEXT), class: "data of" })), cell("", chip(model)),
      whole(model.rows_seen), cell("number", { text: amount(error.window), title: error.name }), cell("compare", box),
      cell("number mid", { text: rate(rates.learned) }),
      ...wide.map((text) => cell("number wide", { text })),
    ];
    return Object.assign(cells, { kind: current && "chosen" });
  }));
}

// -- snapshots ------------------------------------------------------------------------------------

const admin = () => roles.includes("admin");

function showSnapshots(model) {
  const act = admin() && model.version !== undefined;
  for (const each of ["snapshot", "snapshots-act"]) reveal(each, act);
  fill("snapshots", model.snapshots.toSorted((a, b) => b.version - a.version).map((each) => {
    const button = {
      tag: "button", type: "button", text: "Roll back", value: each.version,
      "aria-label": `Roll back to version ${count(each.version)}`, hidden: each.version === model.version ? "" : null,
    };
    const cells = [
      head(whole(each.version)), whole(each.rows_seen), when(each.at), words(each.why),
      cell("number mid", { text: size(each.nbytes) }),
    ];
    return act ? [...cells, cell("", button)] : cells;
  }), "No snapshot yet.");
  if (acted !== model.name) report(model.name, "");
}

/** Show the result of an operation on a model until another model is shown. */
function report(name, text, state = "good") {
  acted = name;
  put("outcome", text);
  mark(find("outcome"), { "data-state": state });
}

/** Request an operation on a model, and report its result. */
async function act(name, verb, body, done) {
  report(name, "Please wait.", "wait");
  try {
    const reply = await fetch(`${place(name)}/${verb}`, {
      method: "POST", headers: authorization(), body: JSON.stringify(body), signal: AbortSignal.timeout(6 * TIMEOUT),
    });
    const found = await reply.json();
    if (!reply.ok) throw new Error(found.error);
    report(name, done(count(found.version)));
  } catch (error) {
    report(name, error instanceof TypeError ? "The server cannot be reached." : error.message, "bad");
  }
  refresh();
}

function confirmRollback(version) {
  const model = models[chosen()];
  const snapshot = model.snapshots.find((each) => each.version === version);
  if (!snapshot) return;
  const [to, before, rows] = [count(version), count(model.version), model.rows_seen - snapshot.rows_seen];
  put("confirm-what", `Roll back ${model.name} to version ${to}?`);
  put("confirm-why", `This undoes the ${count(rows)} ${rows === 1 ? "row" : "rows"} learned since ${moment(snapshot.at)}. `
    + `A rollback to version ${before} would restore them.`);
  find("confirm-yes").onclick = () => {
    find("confirm").close();
    act(model.name, "rollback", { to: version }, (now) => `Rolled back to version ${to}, as version ${now}. A rollback to version ${before} undoes this.`);
  };
  find("confirm").showModal();
}

// -- inputs and coefficients ----------------------------------------------------------------------

const KINDS = { BOOL: "true or false", BYTES: "text" };

function kindOf({ datatype, shape, parameters }) {
  if (shape.length > 1) return shape[1] < 0 ? "not known before the first row" : `${count(shape[1])} numbers`;
  return parameters?.content_type === "datetime" ? "date" : (KINDS[datatype] ?? "number");
}

/** Request the inputs and coefficients of a model, and show them. */
async function describeInputs(name) {
  described = name;
  reveal("inputs-found", false);
  put("inputs-why", "Please wait.");
  try {
    const [{ inputs }, { version, features, outputs, coefficients }] = await Promise.all(["", "/coefficients"].map(async (part) => {
      const reply = await fetch(`${place(name)}${part}`, { headers: authorization(), signal: AbortSignal.timeout(TIMEOUT) });
      const found = await reply.json();
      if (!reply.ok) throw new Error(found.error);
      return found;
    }));
    if (described !== name) return;
    put("inputs-why", `Of version ${count(Number(version))}. Coefficients of a pipeline belong to its transformed, such as scaled, columns.`);
    fill("inputs", inputs.map((each) => [head(words(each.name, "data code")), words(kindOf(each))]));
    fill("coefficients", coefficients.map(({ feature, output, value, standard_error: error }) => [
      head(words(feature, "data code")), ...(outputs > 1 ? [words(output)] : []), number(amount(value)), number(amount(error)),
    ]), "None: the model is not linear, or has not learned a row.");
    const parts = [`${count(features)} features`, ...(outputs > 1 ? [`${count(outputs)} outputs`] : [])];
    put("coefficients-more", coefficients.length < features * outputs ? `largest ${count(coefficients.length)} of ${parts.join(" × ")}` : "");
    reveal("coefficients-output", outputs > 1);
    reveal("inputs-found", true);
  } catch (error) {
    if (described === name) put("inputs-why", error instanceof TypeError ? "The server cannot be reached." : error.message);
  }
}

// -- the first model ------------------------------------------------------------------------------

/** Show commands that create a model, and that learn the first row of a model. */
function showStart(model) {
  const name = model?.name ?? "first";
  const header = token ? " -H 'Authorization: Bearer TOKEN'" : "";
  const url = new URL(place(name), location.href.split("#")[0]).href.replaceAll("'", "%27");
  const texts = {
    "start-name": model ? `${name} has learned no row` : "The server has no models",
    "start-create-why": `Create a model${admin() ? "" : ", with a token of the role admin"}:`,
    "start-create-command": `curl -X PUT '${url}'${header} -d '{"model": "rls"}'`,
    "start-learn-command": `curl '${url}/learn'${header} -d '{"x": {"km": 3.0}, "y": 7}'`,
  };
  for (const [id, text] of Object.entries(texts)) put(id, text);
  reveal("start-create", !model);
}

// -- the server -----------------------------------------------------------------------------------

let models = [];
let roles = [];
const compared = new Map(); // names of models in the chart of another one: indices of their colours
let selected = null; // times between which the chart shows points
let acted, described; // names of the models of the last operation, and of the inputs shown
let server = null; // time of the server, and time of the page when it was received
let retryAt = null;
let token = stored();
let [paused, locked, failures, turn] = [false, false, 0, 0];
let timer, request;

/** Current time of the server. */
const clock = () => server.now + (performance.now() - server.at) / 1000;

/** Return the token in the storage of the browser tab, after storing or removing `given`. */
function stored(given) {
  try {
    if (given) sessionStorage.setItem("onepass token", given);
    if (given === "") sessionStorage.removeItem("onepass token");
    return sessionStorage.getItem("onepass token") ?? "";
  } catch {
    return given ?? ""; // the browser refuses to store data
  }
}

/** URL of a model, relative to the page. */
const place = (name) => `v2/models/${encodeURIComponent(name)}`;
const authorization = () => (token ? { Authorization: `Bearer ${token}` } : {});

/** Index of the model that the URL names; by default of the model with the most rows. */
function chosen() {
  const named = models.findIndex((each) => address(each.name) === location.hash);
  const rows = models.map((each) => each.rows_seen ?? 0);
  return named >= 0 ? named : Math.max(0, rows.indexOf(Math.max(...rows)));
}

function show() {
  const model = models[chosen()];
  showOverview(chosen());
  reveal("model", Boolean(model));
  const unlearned = server !== null && (!model || model.rows_seen === 0);
  reveal("start", unlearned);
  if (unlearned) showStart(model);
  if (model) showModel(model);
  const title = model ? `${model.error ? "! " : ""}${model.name} · onepass` : "onepass";
  if (document.title !== title) document.title = title;
  const left = Math.max(0, Math.ceil((retryAt - performance.now()) / 1000));
  put("disconnected-wait", left ? `Next attempt in ${left} s.` : "Trying.");
}

/** Show the state of the connection, and only the controls in `controls`. */
function link(state, text, ...controls) {
  mark(find("link"), { "data-link": state });
  put("link-text", text);
  for (const each of ["disconnected", "login", "pause", "forget"]) reveal(each, controls.includes(each));
}

function live(state) {
  const former = new Map(models.map((each) => [each.name, each]));
  models = state.models.map((model) => {
    const full = { ...ABSENT, ...model };
    for (const part of ["prequential_error", "rates"]) { // curves that were not requested stay
      full[part] = { ...ABSENT[part], curve: former.get(model.name)?.[part].curve ?? [], ...full[part] };
    }
    return full;
  });
  roles = state.roles;
  for (const name of compared.keys()) if (!models.some((each) => each.name === name)) compared.delete(name);
  server = { now: state.now, at: performance.now() };
  put("onepass", state.onepass.split("+")[0]);
  show();
  link("live", "Live", "pause", token && "forget");
}

function disconnected(why, wait) {
  retryAt = performance.now() + wait;
  put("disconnected-why", `${why}. ${models.length ? "The last state is below." : ""}`.trim());
  link("disconnected", "No response", "disconnected", "pause");
  show();
}

function lock() {
  locked = true;
  models = [];
  server = null;
  show();
  put("login-why", token && "The server did not accept this token.");
  link("locked", "Protected", "login");
  find("token").value = "";
  find("token").focus();
}

/** Request the state now and repeatedly; responses to earlier requests are ignored. */
function refresh() {
  turn += 1;
  clearTimeout(timer);
  request?.abort();
  if (!paused && !locked && !document.hidden) poll(turn);
}

async function poll(mine) {
  let [wait, why] = [POLL, "The server cannot be reached"];
  request = new AbortController();
  const signal = AbortSignal.any([request.signal, AbortSignal.timeout(TIMEOUT)]);
  try {
    const curves = models.length ? [models[chosen()], ...overlaid()].map(({ name }) => ["curves", name]) : [];
    const reply = await fetch(`state?${new URLSearchParams(curves)}`, { headers: authorization(), cache: "no-store", signal });
    wait = Math.min(Number(reply.headers.get("Retry-After")), 300) * 1000;
    why = reply.ok ? "The response of the server is invalid" : `The server responded with status ${reply.status}`;
    const state = reply.ok ? await reply.json() : null;
    if (mine !== turn) return;
    if ([401, 403].includes(reply.status)) {
      lock();
      return;
    }
    live(state);
    [failures, wait] = [0, POLL];
  } catch (error) {
    if (mine !== turn) return;
    failures += 1;
    wait = Math.max(Math.min(MAX_WAIT, POLL * 2 ** failures), wait);
    disconnected(error.name === "TimeoutError" ? `The server did not respond within ${TIMEOUT / 1000} s` : why, wait);
  }
  timer = setTimeout(() => poll(mine), wait);
}

function unlock(given) {
  token = stored(given);
  [locked, failures] = [false, 0];
  refresh();
}

find("pause").addEventListener("click", () => {
  paused = !paused;
  mark(find("pause"), { "aria-pressed": paused });
  if (paused) link("paused", "Paused", "pause");
  refresh();
});
find("retry").addEventListener("click", refresh);
find("forget").addEventListener("click", () => unlock(""));
find("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = find("token").value.trim();
  if (/^[\x21-\x7e]+$/.test(given)) unlock(given);
  else put("login-why", "A token must consist of ASCII characters without spaces.");
});
find("span").addEventListener("change", () => {
  selected = null;
  show();
});
find("with-baseline").addEventListener("change", show);
charts.error.selectable((times) => {
  selected = times;
  find("span").value = times ? "selected" : "Infinity";
  show();
});
find("models-rows").addEventListener("change", ({ target }) => compare(target.value, target.checked));
find("snapshot").addEventListener("click", () => {
  act(models[chosen()].name, "snapshot", undefined, (version) => `Version ${version} has a snapshot.`);
});
find("snapshots-rows").addEventListener("click", ({ target }) => {
  if (target.localName === "button") confirmRollback(Number(target.value));
});
find("confirm-no").addEventListener("click", () => find("confirm").close());
find("inputs").addEventListener("toggle", () => {
  described = null;
  if (server) show();
});
for (const each of document.querySelectorAll(".command button")) {
  each.hidden = !navigator.clipboard;
  each.addEventListener("click", async () => {
    await navigator.clipboard.writeText(each.parentNode.querySelector("code").textContent);
    put(each, "Copied");
  });
}
window.addEventListener("hashchange", () => {
  show();
  refresh();
  if (location.hash.startsWith("#model=")) find("name").scrollIntoView({ block: "nearest" });
});
document.addEventListener("visibilitychange", refresh);
window.addEventListener("online", refresh);
setInterval(() => document.hidden || show(), 1000);
refresh();

export { ago, amount, count, describe, duration, level, rate, size, tick, timeTicks }; // for tests
