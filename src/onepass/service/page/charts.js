// Charts: curves and bars, drawn at the size that they have, read with pointer, finger or keys.

import { course, level, line, nearest, roundStep } from "./axes.js";
import { tick } from "./formats.js";
import { draw, make, mark, say } from "./writing.js";

const LETTER = 6.6; // pixels of a digit at an axis
const BELOW = 20;
const ABOVE = 10;
const RIGHT = 16;
const WIDEST = 20; // pixels of a bar
const CROWD = 24; // marks: more are shown without their lines

const whole = (...span) => Math.max(1, roundStep(...span));

/**
 * A chart in a figure.
 *
 * `about`: `name`, what it shows, and `heading`, the same beside it; `x(number)` and `y(number)`: a
 * number in words; `names` of the curves; `bars` instead of them; `zero` and `log` of the upright
 * axis; `even` and `at`: steps and words of the other; `along`: what runs there, if all points are
 * to be had as a table; `nothing`: what to say without any.
 */
export class Chart {
  constructor(figure, about) {
    this.about = about;
    this.data = { xs: [], curves: [], marks: [] };
    this.within = []; // the marks that are seen
    this.chosen = null; // the point that is looked at
    this.drawn = "";
    this.readout = make("p", { class: "readout number" });
    this.empty = make("p", { class: "empty" }, about.nothing);
    const spoken = { "aria-label": `${about.name}: point` };
    this.cursor = make("input", { type: "range", class: "unseen", min: 0, step: 1, ...spoken });
    this.svg = draw("svg", { role: "img" });
    this.plot = make("div", { class: "plot" }, this.cursor, this.svg, this.empty);
    this.scale = make("span", { class: "scale" });
    const heading = about.heading ? [make("span", {}, about.heading)] : [];
    const caption = make("figcaption", {}, ...heading, this.scale, this.readout);
    figure.append(caption, this.plot);
    if (about.along) figure.append(this.table());
    this.listen();
    new ResizeObserver(() => this.redraw()).observe(this.plot);
  }

  /** Show points: `xs` in order, `curves` of as many numbers or nulls, and `marks` on the x axis. */
  show({ xs, curves, marks = [] }) {
    const now = JSON.stringify([xs, curves, marks]);
    if (now === this.drawn) return;
    const looked = this.chosen === null ? null : this.data.xs[this.chosen];
    this.data = { xs, curves, marks };
    this.drawn = now;
    this.chosen = looked === null || !xs.length ? null : nearest(xs, looked);
    this.redraw();
    if (this.details?.open) this.tabulate();
  }

  listen() {
    const point = (event) => {
      const box = this.svg.getBoundingClientRect();
      if (this.places) this.look(nearest(this.places, event.clientX - box.left));
    };
    const key = () => this.look(Number(this.cursor.value));
    const away = () => this.look(null);
    for (const each of ["pointermove", "pointerdown"]) this.plot.addEventListener(each, point);
    for (const each of ["input", "focus"]) this.cursor.addEventListener(each, key);
    this.plot.addEventListener("pointerleave", away);
    this.cursor.addEventListener("blur", away);
  }

  /** Look at a point; null: at none, and the last is told. */
  look(chosen) {
    const last = this.data.xs.length - 1;
    this.chosen = chosen === null || last < 0 ? null : Math.min(chosen, last);
    const at = this.chosen ?? (this.about.bars ? 0 : last);
    const said = last < 0 ? [] : this.words(at);
    if (said.join() !== this.said) this.tell(said);
    this.cursor.disabled = last < 0;
    this.cursor.max = Math.max(last, 0);
    this.cursor.value = Math.max(at, 0);
    mark(this.cursor, "aria-valuetext", said.join(", "));
    this.cross();
  }

  words(i) {
    const { xs, curves } = this.data;
    const said = curves.map((ys, k) => `${this.about.names[k]} ${this.about.y(ys[i])}`.trim());
    return [this.about.x(xs[i]), ...said];
  }

  /** A point in words, which are the legend as well. */
  tell(said) {
    this.said = said.join();
    const kind = (k) => (said.length > 2 && k ? `key c${k - 1}` : "");
    this.readout.replaceChildren(...said.map((each, k) => make("span", { class: kind(k) }, each)));
    if (this.within.length) this.readout.append(make("span", { class: "key mark" }, this.about.marks));
  }

  cross() {
    this.svg.querySelector(".cross")?.remove();
    if (this.chosen === null || !this.places) return;
    const x = this.places[this.chosen].toFixed(1);
    const cross = draw("g", { class: "cross" });
    cross.append(draw("line", { x1: x, x2: x, y1: ABOVE, y2: this.floor }));
    this.levels.forEach((ys, k) => {
      const y = ys[this.chosen];
      if (y !== null) cross.append(draw("circle", { cx: x, cy: y, r: 3, class: `dot c${k}` }));
    });
    this.svg.append(cross);
  }

  redraw() {
    const { width, height } = this.plot.getBoundingClientRect();
    const { xs, curves } = this.data;
    this.places = null;
    this.within = [];
    this.said = null;
    this.empty.hidden = xs.length > 0;
    if (this.details) this.details.hidden = !xs.length;
    mark(this.svg, "viewBox", `0 0 ${Math.max(width, 1)} ${Math.max(height, 1)}`);
    if (!xs.length || width < 60 || height < 40) this.svg.replaceChildren();
    else this.compose(width, height, xs, curves);
    mark(this.svg, "aria-label", this.summary());
    this.look(this.chosen);
  }

  compose(width, height, xs, curves) {
    const { zero, log, bars, even } = this.about;
    const y = level(curves.flat(), { most: Math.max(2, Math.floor(height / 44)), zero, log });
    const labels = y.ticks.map((each) => tick(each, y.step || each));
    const left = Math.ceil(Math.max(3, ...labels.map((each) => each.length)) * LETTER) + 8;
    const [first, last] = bars ? [0.5, xs.length + 0.5] : [xs[0], xs.at(-1)];
    const most = Math.max(2, Math.floor((width - left) / 76));
    const x = course(first, last, { most, even: bars ? whole : even });
    this.floor = height - BELOW;
    const across = (each) => left + x.place(each) * (width - left - RIGHT);
    const up = (each) => this.floor - y.place(each) * (this.floor - ABOVE);
    this.places = xs.map(across);
    this.levels = curves.map((ys) => ys.map((each) => (each === null ? null : up(each))));
    this.svg.replaceChildren(
      this.rules(y, labels, left, width, up),
      this.below(x, across),
      ...this.marks(across, x),
      ...(bars ? [this.bars(width - left - RIGHT)] : this.lines()),
    );
    say(this.scale, y.log ? "log scale" : "");
  }

  rules(y, labels, left, width, up) {
    const rules = draw("g", { class: "axis" });
    y.ticks.forEach((each, i) => {
      const at = up(each).toFixed(1);
      rules.append(draw("line", { x1: left, x2: width - RIGHT, y1: at, y2: at }));
      rules.append(draw("text", { x: left - 6, y: at, dy: "0.32em", class: "y" }, labels[i]));
    });
    return rules;
  }

  below(x, across) {
    const at = this.about.at ?? tick;
    const group = draw("g", { class: "axis" });
    for (const each of x.ticks) {
      const place = across(each).toFixed(1);
      group.append(draw("line", { x1: place, x2: place, y1: this.floor, y2: this.floor + 4 }));
      group.append(draw("text", { x: place, y: this.floor + 16, class: "x" }, at(each, x.step)));
    }
    return group;
  }

  marks(across, x) {
    this.within = this.data.marks.filter(([at]) => at >= x.low && at <= x.high);
    return this.within.map(([at, name]) => {
      const place = across(at).toFixed(1);
      const path = `M${place} ${ABOVE}V${this.floor}`;
      const flag = `M${place} ${ABOVE}l-4 -7h8z`;
      const drawn = [draw("title", {}, name), draw("path", { d: flag, class: "flag" })];
      if (this.within.length <= CROWD) drawn.push(draw("path", { d: path }));
      return draw("g", { class: "mark" }, ...drawn);
    });
  }

  lines() {
    const path = (ys, k) => draw("path", { class: `line c${k}`, d: line(this.places, ys) });
    return this.levels.map(path).reverse(); // the first lies on top
  }

  bars(width) {
    const each = width / this.places.length;
    const wide = each > 3 ? Math.min(WIDEST, each * 0.7) : each;
    const bar = (x, y) => {
      const top = Math.min(y, this.floor - 1).toFixed(1);
      return `M${(x - wide / 2).toFixed(2)} ${this.floor}V${top}h${wide.toFixed(2)}V${this.floor}z`;
    };
    const path = this.levels[0].map((y, i) => (y === null ? "" : bar(this.places[i], y)));
    return draw("path", { class: "bars", d: path.join("") });
  }

  /** The whole of it in a sentence. */
  summary() {
    const { xs, curves } = this.data;
    const { name, names, nothing } = this.about;
    if (!xs.length) return `${name}: ${nothing}`;
    const told = curves.map((ys, k) => {
      const known = ys.filter((each) => each !== null);
      if (!known.length) return `${names[k]} not known`;
      const [low, high] = [Math.min(...known), Math.max(...known)].map((each) => this.about.y(each));
      return `${names[k]} from ${low} to ${high}, last ${this.about.y(known.at(-1))}`.trim();
    });
    const span = `${this.about.x(xs[0])} to ${this.about.x(xs.at(-1))}`;
    const marks = this.within.slice(-3).map(([, each]) => each);
    return [`${name}, ${span}: ${told.join("; ")}`, ...marks].join("; ");
  }

  table() {
    this.rows = make("tbody");
    const head = [this.about.along, ...this.about.names.map((each) => each || this.about.name)];
    const heads = head.map((each) => make("th", { scope: "col", class: "number" }, each));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), this.rows);
    const name = `As a table: ${this.about.name}`;
    const scroll = { class: "scroll", tabindex: 0, role: "region", "aria-label": name };
    const summary = make("summary", { "aria-label": name }, "As a table");
    this.details = make("details", {}, summary, make("div", scroll, table));
    this.details.addEventListener("toggle", () => this.details.open && this.tabulate());
    return this.details;
  }

  tabulate() {
    const { xs, curves } = this.data;
    const row = (x, i) => [this.about.x(x), ...curves.map((ys) => this.about.y(ys[i]))];
    const number = (text) => make("td", { class: "number" }, text);
    this.rows.replaceChildren(...xs.map((x, i) => make("tr", {}, ...row(x, i).map(number))));
  }
}
