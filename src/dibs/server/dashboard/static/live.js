// Live updates: the server announces a change, the page fetches itself again and replaces the parts that differ.
//
// Parts of a page that may change have the attribute `data-live` and an id. A page that draws by itself (the charts of
// the overview) listens to "dibs:stats" on the document.

import { prefix } from "./prefix.js";

const MIN_INTERVAL = 1500; // minimum milliseconds between two fetches
const RATIO = 10; // and at least ten times the duration of the last fetch
const RESTLESS_INTERVAL = 3000; // milliseconds after which the page is fetched although no task changed
const MAX_INTERVAL = 20000;
const MAX_GAP = 3500; // milliseconds without a stream after which the page says so: a browser reconnects after two seconds
const RECONNECT_DELAY = 5000; // milliseconds until the next attempt after the server refused the stream

const OLD_AFTER = 7000; // milliseconds after which the numbers are shown as old: a busy server updates them every five seconds
const AGE_STEP = 5; // step of the displayed age in seconds: a screen reader announces each change

let version = document.querySelector("meta[name=version]")?.content; // the version that this page shows, then the last announced version
let fetchedAt = 0;
let took = 0;
let waiting = null;
let openedAt = null; // start of the current connection; null without a connection
let knownAt = null; // when the server last read the store
const shown = new Map(); // id of a part -> its content

export function startLive() {
  for (const part of document.querySelectorAll("[data-live]")) shown.set(part.id, content(part));
  const sign = document.getElementById("live-status");
  connect(sign);
  setInterval(() => showAge(sign), 1000);
  addEventListener("pageshow", (event) => event.persisted && location.reload()); // restored from the browser's cache, without a connection
  document.addEventListener("visibilitychange", () => document.hidden || refreshSoon());
}

// A server that ends each stream soon, as under WSGI, is asked again at once: only a longer gap is shown.
function connect(sign) {
  let gap = null;
  const source = new EventSource(`${prefix}/live`);
  source.addEventListener("open", () => {
    clearTimeout(gap);
    gap = null;
    openedAt = performance.now();
    show(sign, "on", "live");
  });
  source.addEventListener("error", () => {
    openedAt = null;
    const refused = source.readyState === EventSource.CLOSED; // otherwise the browser reconnects by itself
    gap ??= setTimeout(() => show(sign, "off", "no connection"), refused ? 0 : MAX_GAP);
    if (refused) connectLater(sign);
  });
  source.addEventListener("stats", (event) => {
    const stats = JSON.parse(event.data);
    knownAt = performance.now() - stats.age * 1000;
    if (stats.age * 1000 <= OLD_AFTER) show(sign, "on", "live");
    beat(sign);
    document.dispatchEvent(new CustomEvent("dibs:stats", { detail: stats }));
    if (version !== stats.version || isOld()) refreshSoon();
    version = stats.version;
  });
  addEventListener("pagehide", () => source.close());
}

// Also fetch the page: if the session has ended, this leads to the sign-in page.
function connectLater(sign) {
  refreshSoon();
  setTimeout(() => connect(sign), RECONNECT_DELAY);
}

// Some changes are not transitions of tasks: a queue is paused, a workflow is finalized after its last step. A page that
// waits for the latter has an element with the attribute `data-restless`.
function isOld() {
  return performance.now() - fetchedAt > (document.querySelector("[data-restless]") ? RESTLESS_INTERVAL : MAX_INTERVAL);
}

// The connection works, but the server cannot read the store: show the age of the numbers.
function showAge(sign) {
  if (openedAt === null || performance.now() - Math.max(openedAt, knownAt ?? 0) <= OLD_AFTER) return;
  show(sign, "off", knownAt === null ? "no numbers yet" : `numbers are ${age((performance.now() - knownAt) / 1000)} old`);
}

function age(seconds) {
  return seconds < 60 ? `${Math.floor(seconds / AGE_STEP) * AGE_STEP} s` : `${Math.floor(seconds / 60)} min`;
}

function show(sign, state, words) {
  if (sign.title === words && sign.classList.contains(state)) return;
  sign.classList.remove("on", "off");
  sign.classList.add(state);
  sign.title = words;
  sign.querySelector(".away").textContent = words;
}

function beat(sign) {
  sign.classList.remove("beat");
  requestAnimationFrame(() => sign.classList.add("beat"));
}

export function refreshSoon() {
  if (waiting !== null || document.hidden || !document.querySelector("[data-live]")) return;
  const rest = Math.max(MIN_INTERVAL, took * RATIO) - (performance.now() - fetchedAt);
  waiting = setTimeout(refresh, Math.max(0, rest));
}

async function refresh() {
  fetchedAt = performance.now();
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (response.status === 401 || response.redirected) location.reload();
    else if (response.ok) replaceParts(await response.text());
  } catch {
    // the status in the corner shows that there is no connection
  } finally {
    took = performance.now() - fetchedAt;
    waiting = null;
  }
}

// Replace the live parts of this page that differ in the fetched page. `submitted`: the form that this page answers, if
// any: its part is replaced although one of its inputs has the focus.
export function replaceParts(html, submitted = null) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    const free = !isBusy(part) || (submitted && part.contains(submitted));
    if (other && content(other) !== shown.get(part.id) && free) replace(part, other);
  }
  document.dispatchEvent(new CustomEvent("dibs:replaced"));
  return fresh;
}

// The content of a part without relative times, so that "3 s ago" and "4 s ago" are equal.
function content(part) {
  const copy = part.cloneNode(true);
  for (const time of copy.querySelectorAll("time")) time.textContent = "";
  return copy.innerHTML;
}

function replace(part, other) {
  const kept = remember(part);
  shown.set(part.id, content(other));
  part.replaceChildren(...document.importNode(other, true).childNodes);
  restore(part, kept);
}

// A part with the focused input or an open dialog is not replaced.
function isBusy(part) {
  const active = document.activeElement;
  const writes = active && part.contains(active) && active.matches("input:not([type=checkbox]), textarea, select");
  return Boolean(writes || part.querySelector("dialog[open]"));
}

function remember(part) {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  return {
    checked: [...part.querySelectorAll("input[type=checkbox]:checked")].map((box) => box.value),
    open: [...part.querySelectorAll("details[open][id]")].map((each) => each.id),
    here: part.querySelector("tr.here")?.id,
    focus: active && (active.id ? `#${CSS.escape(active.id)}` : active.href ? `a[href="${CSS.escape(active.getAttribute("href"))}"]` : null),
    scroll: [...part.querySelectorAll("pre[id], .table[id], .graph[id]")].map((each) => [each.id, each.scrollTop, each.scrollLeft]),
  };
}

function restore(part, kept) {
  for (const box of part.querySelectorAll("input[type=checkbox]")) box.checked = kept.checked.includes(box.value);
  for (const id of kept.open) part.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  if (kept.here) part.querySelector(`#${CSS.escape(kept.here)}`)?.classList.add("here");
  if (kept.focus) part.querySelector(kept.focus)?.focus({ preventScroll: true });
  for (const [id, top, left] of kept.scroll) part.querySelector(`#${CSS.escape(id)}`)?.scrollTo(left, top);
}
