// Reading: what the server says is taken for what it should be, or for nothing.

/** A finite number, or null. */
export function number(x) {
  return typeof x === "number" && Number.isFinite(x) ? x : null;
}

/** An array of bounded length, or an empty one. */
export function list(x) {
  return Array.isArray(x) ? x.slice(0, 5000) : [];
}

/** An object, or an empty one. */
export function record(x) {
  return x !== null && typeof x === "object" && !Array.isArray(x) ? x : {};
}

/** Text of bounded length; what is no text is written as one. */
export function word(x, longest = 2000) {
  if (x === null || x === undefined) return "";
  const text = typeof x === "string" ? x : String(JSON.stringify(x));
  return text.length > longest ? `${text.slice(0, longest)}…` : text;
}
