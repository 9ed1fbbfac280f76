// Overview: a row for each model, where there are several.

import { course, level, line } from "./axes.js";
import { amount, count, rate, size } from "./formats.js";
import { condition, named, points } from "./model.js";
import { record, word } from "./reading.js";
import { draw, find, make, mark, put, reveal, say } from "./writing.js";

const WIDE = 120;
const HIGH = 22;

/** The place in the page's address that shows a model. */
export function address(name) {
  return `#model=${encodeURIComponent(name.toWellFormed())}`;
}

/** Show the models, of which one is chosen. */
export function overview(models, chosen) {
  reveal(find("models"), models.length > 1);
  if (models.length < 2) return;
  put("models-count", count(models.length));
  const body = find("models-rows");
  while (body.rows.length > models.length) body.lastChild.remove();
  while (body.rows.length < models.length) body.append(row());
  models.forEach((model, i) => write(body.rows[i], model, i === chosen));
}

function row() {
  const cell = (kind, ...within) => make("td", { class: kind }, ...within);
  const [link, of] = [make("a", { class: "data" }), make("span", { class: "data of" })];
  const svg = { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "spark", "aria-hidden": "true" };
  const curve = draw("svg", svg, draw("path", { class: "line c0" }));
  const kinds = ["mid", "wide", "wide", "wide", "wide"].map((each) => cell(`number ${each}`));
  return make("tr", {}, make("th", { scope: "row" }, link, of), cell("", make("span", { class: "chip" })),
    cell("number"), cell("number"), cell("wide", curve), ...kinds);
}

function write(row, model, chosen) {
  const [name, state, rows, error, curve, learned, predicted, memory, waiting, refused] = row.cells;
  const [link, of] = name.children;
  const called = word(model.name);
  named(link, called, 60);
  mark(link, "href", address(called));
  mark(link, "aria-current", chosen ? "true" : null);
  say(of, word(model.class, 60));
  mark(row, "class", chosen ? "chosen" : null);
  const [kind, said] = condition(model);
  say(state.firstChild, said);
  mark(state.firstChild, "data-state", kind);
  const [errors, rates] = [record(model.error), record(model.rates)];
  say(rows, count(model.rows_seen));
  say(error, amount(errors.window));
  mark(error, "title", word(errors.name, 80) || null);
  mark(curve.querySelector("path"), "d", spark(points(errors.curve)));
  say(learned, rate(rates.learned));
  say(predicted, rate(rates.predicted));
  say(memory, size(model.nbytes));
  say(waiting, count(model.waiting));
  say(refused, count(model.rows_refused));
}

function spark(curve) {
  const ys = curve.map(([, , window]) => window);
  if (!ys.some((each) => each !== null)) return "";
  const up = level(ys, { most: 2, log: true });
  const along = course(curve[0][0], curve.at(-1)[0]);
  const across = ([x]) => 2 + along.place(x) * (WIDE - 4);
  const height = (y) => (y === null ? null : HIGH - 3 - up.place(y) * (HIGH - 6));
  return line(curve.map(across), ys.map(height));
}
