// Model: all that is known of one, in the page's main part.

import { timeStep } from "./axes.js";
import { Chart } from "./charts.js";
import { NONE, amount, count, duration, past, rate, size } from "./formats.js";
import { list, number, record, word } from "./reading.js";
import { cell, fill, find, mark, put, reveal, say } from "./writing.js";

const SHOWN = 12; // rows of a table
const LONG = 300; // characters of a text in a table
const SHORT = 20; // characters that need not be broken

function paceChart(id, heading) {
  const back = (each) => past(-each);
  return new Chart(find(id), {
    name: `${heading}, rows a second`, heading, nothing: "Nothing yet.",
    names: [""], x: back, y: (each) => `${rate(each)} rows/s`, at: back, even: timeStep, zero: true,
  });
}

/** The part of the page that shows one model. */
export class Model {
  constructor() {
    this.error = new Chart(find("error-chart"), {
      name: "Prequential curve", along: "Row", nothing: "No row was predicted and learned yet.",
      names: ["window", "all rows"], marks: "drift", x: (each) => `row ${count(each)}`, y: amount, log: true,
    });
    this.learned = paceChart("learned-chart", "Learned");
    this.predicted = paceChart("predicted-chart", "Predicted");
    this.spectrum = new Chart(find("spectrum-chart"), {
      name: "Memory spectrum", along: "Direction", nothing: "None.",
      names: [""], x: (each) => `direction ${count(each)}`, y: amount, bars: true, zero: true, log: true,
    });
  }

  show(model) {
    this.head(model);
    this.figures(model);
    this.curves(model);
    refused(list(model.refused));
    snapshots(list(model.snapshots));
    drift(list(model.drift), Object.keys(record(model.watching)));
    sources(record(model.positions));
  }

  head(model) {
    named(find("name"), model.name, 160);
    put("made", `${word(model.class)}(${word(model.parameters)})`);
    const [kind, said] = condition(model);
    put("state", said);
    mark(find("state"), "data-state", kind);
    const trouble = word(model.trouble);
    put("trouble", trouble);
    reveal(find("trouble"), trouble !== "");
  }

  figures(model) {
    const error = record(model.error);
    const rates = record(model.rates);
    const measure = word(error.name, 80) || "error";
    const last = error.window_rows > 0 ? `, last ${count(error.window_rows)} rows` : "";
    put("error-window-of", measure + last);
    put("error-name", `Prequential ${measure}`);
    put("error-window", amount(error.window));
    put("error-all", `${amount(error.all)} over all rows`);
    put("rows-seen", count(model.rows_seen));
    put("version", `version ${count(model.version)}`);
    put("learned", rate(rates.learned));
    put("predicted", rate(rates.predicted));
    put("memory", size(model.nbytes));
    put("nbytes", model.nbytes >= 1024 ? `${count(model.nbytes)} bytes` : "");
    put("waiting", count(model.waiting));
    put("rows-refused", count(model.rows_refused));
    for (const verb of ["learn", "predict"]) {
      const taken = record(record(model.latency)[verb]);
      for (const part of ["p50", "p99"]) put(`${verb}-${part}`, duration(taken[part]));
    }
  }

  curves(model) {
    const share = Number(find("span").value); // of the rows, so many of the last
    const all = points(record(model.error).curve);
    const curve = all.filter(([x]) => x >= (1 - share) * all.at(-1)[0]);
    reveal(find("span"), all.length > 0);
    const drifts = list(model.drift).map(record).filter((each) => number(each.rows) !== null);
    this.error.show({
      xs: curve.map(([x]) => x),
      curves: [curve.map(([, , window]) => window), curve.map(([, all]) => all)],
      marks: drifts.map((each) => [each.rows, `drift at row ${count(each.rows)}`]),
    });
    const pace = points(record(model.rates).curve).reverse();
    const xs = pace.map(([x]) => 0 - x);
    this.learned.show({ xs, curves: [pace.map(([, learned]) => learned)] });
    this.predicted.show({ xs, curves: [pace.map(([, , predicted]) => predicted)] });
    const spectrum = list(model.spectrum).map(number);
    this.spectrum.show({ xs: spectrum.map((_, i) => i + 1), curves: [spectrum] });
    reveal(find("spectrum"), spectrum.length > 0);
    put("spectrum-unit", spectrum.length ? `rank ${count(spectrum.length)}` : "");
  }
}

/** A name, of which so many characters are shown; the rest is its title. */
export function named(node, name, longest) {
  const said = word(name);
  say(node, word(name, longest) || "(no name)");
  mark(node, "title", said.length > longest ? said : null);
}

/** What to call a model's condition, and how to colour it. */
export function condition(model) {
  if (word(model.trouble)) return ["bad", "in trouble"];
  return model.ready === true ? ["good", "ready"] : ["wait", "not ready"];
}

/** Points of a curve, in order of their x, each with two numbers or nulls. */
export function points(curve) {
  const read = list(curve).map((each) => [0, 1, 2].map((i) => number(list(each)[i])));
  return read.filter(([x]) => x !== null).sort(([a], [b]) => a - b);
}

/** The latest first, and so many of them. */
function latest(rows, by, more) {
  const order = (each) => number(each[by]) ?? -Infinity;
  const sorted = rows.map(record).sort((a, b) => order(b) - order(a) || 0);
  put(more, rows.length > SHOWN ? `the last ${SHOWN} of ${count(rows.length)}` : "");
  return sorted.slice(0, SHOWN);
}

const whole = (x) => cell(count(x), { kind: "number" });
const when = (at) => cell(NONE, { kind: "when", at: number(at) });
const text = (x, kind = "data") => {
  const said = word(x);
  const short = said.length <= SHORT ? `${kind} short` : kind;
  return cell(word(x, LONG), { kind: short, title: said.length > LONG ? said : "" });
};

function refused(rows) {
  const row = (each) => [when(each.at), whole(each.rows), text(each.why)];
  fill(find("refused-rows"), latest(rows, "at", "refused-more").map(row), "No row was refused.");
}

function snapshots(rows) {
  const row = (each) => [
    cell(count(each.version), { kind: "number", head: true }), whole(each.rows_seen),
    when(each.at), text(each.why), cell(size(each.nbytes), { kind: "number" }),
  ];
  fill(find("snapshots-rows"), latest(rows, "version", "snapshots-more").map(row), "No snapshot yet.");
}

function drift(rows, detectors) {
  const row = (each) => [whole(each.rows), when(each.at), text(each.detector)];
  const none = detectors.length ? "No alarm yet." : "No detector: --drift adwin would be one.";
  fill(find("drift-rows"), latest(rows, "rows", "drift-more").map(row), none);
}

function sources(positions) {
  const all = Object.entries(positions);
  put("sources-more", all.length > SHOWN ? `the first ${SHOWN} of ${count(all.length)}` : "");
  const name = (source) => cell(word(source, LONG), { kind: "data code", head: true });
  const known = (position) => (word(position) ? text(position, "data code") : text("nothing yet"));
  const row = ([source, position]) => [name(source), known(position)];
  fill(find("sources-rows"), all.slice(0, SHOWN).map(row), "Rows come by request alone.");
}
