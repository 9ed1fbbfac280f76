// Asking: the server's state, each second; more seldom while it does not answer, and never while
// nobody looks.

const EACH = 1000; // milliseconds
const LONGEST = 30000;
const PATIENCE = 10000;
const KEY = "onepass token";

/** What asks. `tell` is called with `live` and a state, `lost` and why, or `locked` and why. */
export class Asking {
  constructor(url, tell) {
    this.url = url;
    this.tell = tell;
    this.failures = 0;
    this.paused = false;
    this.locked = false;
    this.token = kept();
    this.turn = 0; // what was asked in an earlier turn tells nothing any more
    document.addEventListener("visibilitychange", () => this.again());
    window.addEventListener("online", () => this.again());
  }

  /** Ask now, and go on asking. */
  again() {
    this.stop();
    if (!this.paused && !this.locked && !document.hidden) this.ask(this.turn);
  }

  stop() {
    this.turn += 1;
    clearTimeout(this.timer);
    this.ending?.abort();
  }

  pause(paused) {
    this.paused = paused;
    this.again();
  }

  /** Go on with a token; none: with no token. */
  unlock(token) {
    this.token = token;
    keep(token);
    this.locked = false;
    this.failures = 0;
    this.again();
  }

  async ask(turn) {
    const outcome = await this.answer();
    if (turn !== this.turn) return;
    if (outcome.locked) {
      this.locked = true;
      this.tell.locked(this.token ? "The server did not take this token." : "");
      return;
    }
    let wait = EACH;
    if (outcome.why) {
      this.failures += 1;
      wait = Math.max(Math.min(LONGEST, EACH * 2 ** this.failures), outcome.least ?? 0);
      this.tell.lost(outcome.why, wait / 1000);
    } else {
      this.failures = 0;
      this.shown(outcome.state);
    }
    if (turn === this.turn) this.timer = setTimeout(() => this.ask(turn), wait);
  }

  /** A state that the page cannot show is no reason to ask no more. */
  shown(state) {
    try {
      this.tell.live(state);
    } catch (wrong) {
      this.tell.lost("The page cannot show what the server answered", EACH / 1000);
      reportError(wrong);
    }
  }

  async answer() {
    this.ending = new AbortController();
    const ending = this.ending;
    const timer = setTimeout(() => ending.abort(), PATIENCE);
    try {
      const headers = { Accept: "application/json" };
      if (this.token) headers.Authorization = `Bearer ${this.token}`;
      const said = await fetch(this.url, { headers, cache: "no-store", signal: ending.signal });
      if (said.status === 401 || said.status === 403) return { locked: true };
      if (!said.ok) return { why: `The server answered ${said.status}`, least: asked(said) };
      return read(await said.text());
    } catch {
      const late = `The server did not answer within ${PATIENCE / 1000} s`;
      return { why: ending.signal.aborted ? late : "The server cannot be reached" };
    } finally {
      clearTimeout(timer);
    }
  }
}

function read(text) {
  try {
    const state = JSON.parse(text);
    if (Array.isArray(state?.models)) return { state };
  } catch {
    // told below
  }
  return { why: "What the server answered is no state of onepass" };
}

/** How long a busy server asked us to wait, in milliseconds. */
function asked(said) {
  const seconds = Number(said.headers.get("Retry-After"));
  return seconds > 0 ? Math.min(seconds, 300) * 1000 : 0;
}

function kept() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

function keep(token) {
  try {
    if (token) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  } catch {
    // a browser that keeps nothing: until the page is closed
  }
}
