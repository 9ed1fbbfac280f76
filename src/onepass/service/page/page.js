// Page: asks the server, and shows what it says.

import { Asking } from "./asking.js";
import { ago, moment, stamp } from "./formats.js";
import { Model } from "./model.js";
import { address, overview } from "./overview.js";
import { number, record, word } from "./reading.js";
import { find, mark, put, reveal, say } from "./writing.js";

const detail = new Model();
let models = [];
let server = null; // the server's time, and ours when it came
let lostUntil = null;

const asking = new Asking("state", { live, lost, locked });

function live(state) {
  models = state.models.map(record);
  const now = number(state.now);
  server = now === null ? null : { now, at: performance.now() };
  put("onepass", word(state.onepass, 40).split("+")[0]);
  connected("live", "Live");
  only("pause", asking.token && "forget");
  show();
}

function lost(why, wait) {
  connected("lost", "No answer");
  lostUntil = performance.now() + wait * 1000;
  put("lost-why", `${why}. ${models.length ? "Below is what it said last." : ""}`.trim());
  only("lost", "pause");
  tick();
}

function locked(why) {
  connected("locked", "Protected");
  models = [];
  show();
  reveal(find("nothing"), false);
  only("door");
  put("door-why", why);
  find("token").value = "";
  find("token").focus();
}

function connected(link, said) {
  lostUntil = null;
  mark(find("link"), "data-link", link);
  put("link-says", said);
}

/** Of all that tells or asks about the server, only these. */
function only(...shown) {
  for (const each of ["lost", "door", "pause", "forget"]) reveal(find(each), shown.includes(each));
}

/** Which model the page's address asks for; else the first of those with most rows. */
function chosen() {
  const names = (name) => [address(name), `#model=${name}`];
  const asked = models.findIndex((each) => names(word(each.name)).includes(location.hash));
  const rows = models.map((each) => number(each.rows_seen) ?? 0);
  return asked >= 0 ? asked : Math.max(0, rows.indexOf(Math.max(...rows)));
}

function show() {
  const at = chosen();
  const model = models[at];
  overview(models, at);
  reveal(find("model"), Boolean(model));
  reveal(find("nothing"), !model);
  put("nothing", "No model is served.");
  if (model) detail.show(model);
  const trouble = models.some((each) => word(each.trouble)) ? "! " : "";
  const title = `${trouble}${model ? `${word(model.name, 80)} · ` : ""}onepass`;
  if (document.title !== title) document.title = title;
  tick();
}

/** All that changes with time alone: how long ago, and how long until. */
function tick() {
  if (lostUntil !== null) {
    const left = Math.max(0, Math.ceil((lostUntil - performance.now()) / 1000));
    put("lost-wait", left ? `Next try in ${left} s.` : "Trying.");
  }
  const now = server && server.now + (performance.now() - server.at) / 1000;
  for (const node of document.querySelectorAll("time")) {
    const at = number(Number(node.dataset.at));
    say(node, now === null ? moment(at) : ago(now - at));
    mark(node, "title", moment(at));
    mark(node, "datetime", stamp(at));
  }
}

find("pause").addEventListener("click", () => {
  const paused = !asking.paused;
  mark(find("pause"), "aria-pressed", String(paused));
  if (paused) connected("paused", "Paused");
  only("pause");
  asking.pause(paused);
});

find("again").addEventListener("click", () => asking.again());

find("forget").addEventListener("click", () => asking.unlock(""));

find("door").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = find("token").value.trim();
  if (/^[\x21-\x7e]+$/.test(token)) asking.unlock(token);
  else put("door-why", "A token is letters, digits and signs without spaces.");
});

find("span").addEventListener("change", show);

window.addEventListener("hashchange", () => {
  show();
  if (location.hash.startsWith("#model=")) find("name").scrollIntoView({ block: "nearest" });
});
setInterval(() => document.hidden || tick(), 1000);
asking.again();
