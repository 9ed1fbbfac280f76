// Axes: where a number stands, and the round numbers beside it.

const GREATEST = 1e300; // what is beyond is drawn as if it were this,
const LEAST = 1e-290; // and what is nearer to zero as if it were zero: so no difference overflows
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];

/** The least round step, 1, 2 or 5 times a power of ten, that leaves at most so many of a span. */
export function roundStep(span, most) {
  const least = span / most;
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((times) => times * power >= least * (1 - 1e-9));
}

/** The same of seconds: whole minutes and hours. */
export function timeStep(span, most) {
  return TIMES.find((each) => each >= (span / most) * (1 - 1e-9)) ?? roundStep(span, most);
}

/** The multiples of a step from low to high. */
export function multiples(low, high, step) {
  const found = [];
  const first = Math.ceil(low / step - 1e-9);
  for (let i = first; i <= high / step + 1e-9 && found.length < 50; i += 1) found.push(i * step);
  return found;
}

/** Round numbers on a logarithmic axis: powers of ten, with 2 and 5 where there are few. */
export function powers(low, high, most) {
  const first = Math.floor(Math.log10(low) + 1e-9);
  const last = Math.ceil(Math.log10(high) - 1e-9);
  const every = Math.max(1, Math.ceil((last - first + 1) / most));
  const within = last - first < 3 ? [1, 2, 5] : [1];
  const found = [];
  for (let i = first; i <= last; i += every) found.push(...within.map((each) => each * 10 ** i));
  return found.filter((x) => x >= low * (1 - 1e-9) && x <= high * (1 + 1e-9));
}

/**
 * An upright axis for numbers that are known: round ends, ticks, and where a number stands between
 * 0 and 1. `zero`: it begins there; `log`: if they are far apart, and all above zero, it is
 * logarithmic.
 */
export function level(numbers, { most = 4, zero = false, log = false } = {}) {
  let [low, high] = ends(numbers);
  if (log && low > 0 && high / low >= 50) return logarithmic(low, high, most, zero);
  if (zero || (low > 0 && low < 0.6 * high)) low = Math.min(low, 0);
  if (same(low, high)) [low, high] = around(low);
  const step = roundStep(high - low, most);
  low = Math.floor(low / step + 1e-9) * step;
  high = Math.ceil(high / step - 1e-9) * step;
  return linear(low, high, step);
}

/** An axis along which rows or seconds run, from the first to the last. */
export function course(first, last, { most = 4, even = roundStep } = {}) {
  let [low, high] = [tame(first), tame(last)];
  const room = Math.max(1, Math.abs(low) / 2);
  if (same(low, high)) [low, high] = [low - room, high + room];
  return linear(low, high, even(high - low, most));
}

function linear(low, high, step) {
  const place = (x) => (tame(x) - low) / (high - low);
  return { low, high, log: false, step, ticks: multiples(low, high, step), place };
}

/** Of bars, even the shortest is seen: the axis begins at the power of ten below it. */
function logarithmic(least, most, count, bars) {
  const low = bars ? 10 ** (Math.ceil(Math.log10(least) - 1e-9) - 1) : least;
  const [a, b] = [Math.log10(low), Math.log10(most)];
  const place = (x) => (x > 0 ? Math.min(1, Math.max(0, (Math.log10(x) - a) / (b - a))) : 0);
  return { low, high: most, log: true, step: 0, ticks: powers(low, most, count), place };
}

function ends(numbers) {
  let low = Infinity;
  let high = -Infinity;
  for (const x of numbers) {
    if (x === null) continue;
    low = Math.min(low, tame(x));
    high = Math.max(high, tame(x));
  }
  return low <= high ? [low, high] : [0, 1];
}

function tame(x) {
  return Math.abs(x) < LEAST ? 0 : Math.min(GREATEST, Math.max(-GREATEST, x));
}

/** Whether no round number fits between two. */
function same(low, high) {
  return high - low <= 1e-12 * Math.max(Math.abs(low), Math.abs(high));
}

function around(x) {
  if (x === 0) return [0, 1];
  return x > 0 ? [0, 2 * x] : [2 * x, 0];
}

/** A line through points in pixels, broken where one is not known. */
export function line(xs, ys) {
  const part = (x, i) => {
    if (ys[i] === null) return "";
    const at = `${x.toFixed(1)} ${ys[i].toFixed(1)}`;
    return (ys[i - 1] ?? null) === null ? `M${at}h0` : `L${at}`; // a point alone is a dot
  };
  return xs.map(part).join("");
}

/** The place of the number nearest to x, of numbers in order. */
export function nearest(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}
