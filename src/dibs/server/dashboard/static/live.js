// Live: the server says that something changed, the page asks for itself again and shows what is different.
//
// Parts of a page that may change are marked `data-live` and have an id. A page that draws something by itself (the
// charts of the overview) listens to "dibs:pulse" on the document.

const AT_LEAST = 1500; // milliseconds between two looks, however much happens
const RATIO = 10; // and ten times as long as the last one took
const RESTLESS = 3000; // milliseconds after which it asks although nothing happened to any task
const ANYWAY = 20000;
const AGAIN = 5000; // milliseconds until we ask again after the server has refused to tell us of changes

const OLD = 7000; // milliseconds after which numbers are called old: a server that is busy looks every five seconds
const STEP = 5; // seconds by which they are said to grow older: whoever hears the sign read out is told of each change

let version = document.querySelector("meta[name=version]")?.content; // what this page may show; then what we heard of
let asked = 0;
let took = 0;
let waiting = null;
let openedAt = null; // when the server last began to talk to us, while it does
let knownAt = null; // when it last looked at the store
const shown = new Map(); // id of a part -> what it shows

export function startLive() {
  for (const part of document.querySelectorAll("[data-live]")) shown.set(part.id, content(part));
  const sign = document.getElementById("pulse");
  connect(sign);
  setInterval(() => showAge(sign), 1000);
  addEventListener("pageshow", (event) => event.persisted && location.reload()); // it was kept, but hears nothing more
  document.addEventListener("visibilitychange", () => document.hidden || refreshSoon());
}

function connect(sign) {
  const source = new EventSource("/live");
  source.addEventListener("open", () => {
    openedAt = performance.now();
    show(sign, "on", "live");
  });
  source.addEventListener("error", () => {
    openedAt = null;
    show(sign, "off", "no connection");
    if (source.readyState === EventSource.CLOSED) connectLater(sign); // refused, else it tries again by itself
  });
  source.addEventListener("pulse", (event) => {
    const pulse = JSON.parse(event.data);
    knownAt = performance.now() - pulse.age * 1000;
    if (pulse.age * 1000 <= OLD) show(sign, "on", "live");
    beat(sign);
    document.dispatchEvent(new CustomEvent("dibs:pulse", { detail: pulse }));
    if (version !== pulse.version || isOld()) refreshSoon();
    version = pulse.version;
  });
  addEventListener("pagehide", () => source.close());
}

// Also look at the page itself: who is not signed in any more is led to the door by it.
function connectLater(sign) {
  refreshSoon();
  setTimeout(() => connect(sign), AGAIN);
}

// Not everything that changes is a move of a task: a queue is paused, a workflow is finalized when its last step has
// ended. A page that waits for the latter has an element marked `data-restless`.
function isOld() {
  return performance.now() - asked > (document.querySelector("[data-restless]") ? RESTLESS : ANYWAY);
}

// The server talks to us, but has no news of the store: what the page shows is how it was.
function showAge(sign) {
  if (openedAt === null || performance.now() - Math.max(openedAt, knownAt ?? 0) <= OLD) return;
  show(sign, "off", knownAt === null ? "no numbers yet" : `numbers are ${age((performance.now() - knownAt) / 1000)} old`);
}

function age(seconds) {
  return seconds < 60 ? `${Math.floor(seconds / STEP) * STEP} s` : `${Math.floor(seconds / 60)} min`;
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
  const rest = Math.max(AT_LEAST, took * RATIO) - (performance.now() - asked);
  waiting = setTimeout(refresh, Math.max(0, rest));
}

async function refresh() {
  asked = performance.now();
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (response.status === 401 || response.redirected) location.reload();
    else if (response.ok) replaceParts(await response.text());
  } catch {
    // the sign in the corner tells that there is no connection
  } finally {
    took = performance.now() - asked;
    waiting = null;
  }
}

// Put every live part of that page in the place of ours, where they differ.
export function replaceParts(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (other && content(other) !== shown.get(part.id) && !isBusy(part)) replace(part, other);
  }
  document.dispatchEvent(new CustomEvent("dibs:replaced"));
  return fresh;
}

// What a part says; "3 s ago" and "4 s ago" are the same.
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

// Somebody writes there, or has a question open: do not pull it away.
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
