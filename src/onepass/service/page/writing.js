// Writing: text into the page, only ever as text, and only where it has changed.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);

/** Put text into an element. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** The same, by its id. */
export function put(id, text) {
  say(find(id), text);
}

/** Set an attribute, or take it away. */
export function mark(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Show an element, or not. */
export function reveal(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

/** An element with attributes, and text or elements within it. */
export function make(tag, attributes = {}, ...within) {
  return dressed(document.createElement(tag), attributes, within);
}

/** The same, of a drawing. */
export function draw(tag, attributes = {}, ...within) {
  return dressed(document.createElementNS(SVG, tag), attributes, within);
}

function dressed(node, attributes, within) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...within);
  return node;
}

/** Fill a table's body with rows: lists of cells, as `cell` makes them. */
export function fill(body, rows, empty) {
  const now = JSON.stringify([rows, empty]);
  if (body.filled === now) return;
  body.filled = now;
  body.replaceChildren(...rows.map((row) => make("tr", {}, ...row.map(built))));
  if (!rows.length && empty) {
    const columns = body.parentNode.querySelectorAll("thead th").length;
    body.append(make("tr", { class: "none" }, make("td", { colspan: columns }, empty)));
  }
}

/** A cell: text, with a class, the title that shows all of it, or the time that it stands for. */
export function cell(text, { kind = "", title = "", at = null, head = false } = {}) {
  return { text, kind, title, at, head };
}

function built({ text, kind, title, at, head }) {
  const node = make(head ? "th" : "td", head ? { scope: "row" } : {});
  if (kind) node.className = kind;
  if (title) node.title = title;
  node.append(at === null ? text : make("time", { "data-at": at }, text));
  return node;
}
