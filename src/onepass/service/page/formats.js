// Formats: numbers, sizes and times in words, each with its unit. What is not known is a dash.

export const NONE = "–";

const GROUPED = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const SHORT = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const SIZES = ["bytes", "KiB", "MiB", "GiB", "TiB"];
const AGES = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const TIMES = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "long" }); // as ISO's

const known = Number.isFinite; // of what is no number at all, false
const signed = (text) => text.replaceAll("-", "−");
const dated = (at) => known(at) && Math.abs(at) <= 8.64e12; // a Date knows no other days
const places = (step) => Math.min(8, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));

/** A whole number: 12,034. */
export function count(x) {
  if (!known(x)) return NONE;
  return Math.abs(x) < 1e15 ? signed(GROUPED.format(x)) : amount(x);
}

/** Any number, to so many significant digits: 0.8100, 1.235e7. */
export function amount(x, digits = 4) {
  if (!known(x)) return NONE;
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size < 1e-3 || size >= 1e6) return signed(x.toExponential(digits - 1).replace("+", ""));
  const options = { minimumSignificantDigits: digits, maximumSignificantDigits: digits };
  return signed(new Intl.NumberFormat("en-GB", options).format(x));
}

/** So many a second: 0.25, 81.2, 12,034. */
export function rate(x) {
  if (!known(x)) return NONE;
  return x === 0 || x >= 99.95 ? count(x) : signed(x.toFixed(x < 9.995 ? 2 : 1));
}

/** How long: 300 µs, 2.00 ms, 1.25 s. */
export function duration(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds >= 60) return `${amount(seconds / 60, 3)} min`;
  if (seconds >= 0.9995) return `${amount(seconds, 3)} s`;
  return seconds >= 9.995e-4 ? `${amount(seconds * 1e3, 3)} ms` : `${amount(seconds * 1e6, 3)} µs`;
}

/** How large: 328 bytes, 5.0 KiB. */
export function size(bytes) {
  if (!known(bytes)) return NONE;
  let power = 0;
  let left = bytes;
  while (left >= 1023.95 && power < SIZES.length - 1) {
    left /= 1024;
    power += 1;
  }
  return power ? `${left < 99.95 ? left.toFixed(1) : count(left)} ${SIZES[power]}` : `${count(left)} bytes`;
}

/** A number at an axis, beside others that are a step apart: 0.25, 1,500, 20k. */
export function tick(x, step) {
  if (x === 0) return "0";
  const most = Math.abs(x);
  if (most < 1e-4 || most >= 1e15) return signed(x.toExponential(0).replace("+", ""));
  for (const [unit, letter] of SHORT) {
    if (most >= 10 * unit || (most >= unit && unit > 1e3)) {
      const decimals = places(step / unit);
      if (decimals < 3) return signed((x / unit).toFixed(decimals)) + letter;
    }
  }
  const options = { minimumFractionDigits: places(step), maximumFractionDigits: places(step) };
  return signed(new Intl.NumberFormat("en-GB", options).format(x));
}

/** How long ago: 12 s ago, 5 min ago. */
export function ago(seconds) {
  if (!known(seconds)) return NONE;
  const [unit, name] = AGES.find(([unit]) => Math.abs(seconds) >= unit) ?? [1, ""];
  if (!name) return "now";
  const said = `${count(Math.floor(Math.abs(seconds) / unit))}\u00a0${name}`;
  return seconds > 0 ? `${said} ago` : `in ${said}`;
}

/** The same of a chart, in its largest whole unit: −5 min, −297 s. */
export function past(seconds) {
  const [unit, name] = AGES.find(([unit]) => seconds % unit === 0) ?? AGES.at(-1);
  return seconds ? `−${count(seconds / unit)}\u00a0${name}` : "now";
}

/** The time of day where the reader is: 2026-11-22 23:07:12 CET. */
export function moment(at) {
  return dated(at) ? TIMES.format(new Date(at * 1000)) : "";
}

/** The same for machines. */
export function stamp(at) {
  return dated(at) ? new Date(at * 1000).toISOString() : "";
}
