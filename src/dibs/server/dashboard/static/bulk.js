// Bulk actions: ask for confirmation, then request one small batch after the other; the user can stop between batches.

import { confirmed, post, showNotice } from "./acts.js";
import { refreshSoon } from "./live.js";

const MAX_ATTEMPTS = 5; // maximum number of attempts for a batch while the store is busy
const RETRY_DELAY = 1000; // milliseconds before the next attempt, times the number of the attempt

let working = false;
let stopped = false;

export function startBulk() {
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-bulk]")) return;
    event.preventDefault();
    if (!working) begin(event.target, event.submitter);
  });
  document.getElementById("working-stop").addEventListener("click", () => (stopped = true));
  addEventListener("beforeunload", (event) => working && event.preventDefault());
}

async function begin(form, button) {
  const fields = new URLSearchParams(new FormData(form, button));
  const picked = fields.getAll("ids").length;
  const matching = fields.get("which") === "matching";
  if (!matching && picked === 0) return showNotice("Select tasks first, or choose all that match.", true);
  const label = button.dataset.label ?? button.textContent.trim();
  if (!(await confirmed(question(form, label, matching, picked), label))) return;
  if (matching) fields.delete("ids");
  await work(form, fields);
}

function question(form, label, matching, picked) {
  if (form.dataset.confirm) return form.dataset.confirm;
  if (!matching) return `${label} ${picked === 1 ? "1 task" : `${picked.toLocaleString("en")} tasks`}?`;
  const words = form.dataset.words;
  return words ? `${label} all tasks that match ${words}?` : `${label} all tasks?`;
}

async function work(form, fields) {
  working = true;
  stopped = false;
  const total = { moved: 0, looked: 0, of: Number(form.dataset.total) || 0 };
  show(total);
  try {
    await batches(form.getAttribute("action"), fields, total); // form.action is the button with the name action
    showNotice(summary(fields.get("action"), total.moved) + (stopped ? " Stopped before the end." : ""));
  } catch (problem) {
    showNotice(`${summary(fields.get("action"), total.moved)} Then an error occurred: ${problem.message}`, true);
  } finally {
    working = false;
    document.getElementById("working").hidden = true;
    for (const box of form.querySelectorAll("input[type=checkbox]")) box.checked = false;
    form.dispatchEvent(new Event("change", { bubbles: true }));
    refreshSoon();
  }
}

// From the newest task to the oldest: a batch starts where the previous one ended. Tasks enqueued meanwhile are skipped.
async function batches(url, fields, total) {
  for (let cursor = null; !stopped; ) {
    if (cursor !== null) fields.set("cursor", cursor);
    const done = await batch(url, fields);
    total.moved += done.moved;
    total.looked += done.looked;
    cursor = done.cursor;
    show(total);
    if (cursor === null) return;
  }
}

async function batch(url, fields) {
  for (let attempt = 1; ; attempt += 1) {
    const response = await post(url, new URLSearchParams(fields), "application/json").catch(() => null);
    const reply = response && (await response.json().catch(() => null));
    if (response?.ok && reply) return reply;
    if (attempt === MAX_ATTEMPTS || (response && response.status !== 503)) throw new Error(reason(reply));
    await new Promise((resolve) => setTimeout(resolve, RETRY_DELAY * attempt));
  }
}

function reason(reply) {
  return reply?.error ? `${reply.error} ${reply.hint || ""}` : "the server did not answer.";
}

function show(total) {
  const bar = document.getElementById("working-bar");
  document.getElementById("working").hidden = false;
  const count = (number) => number.toLocaleString("en");
  document.getElementById("working-words").textContent = `${count(total.moved)} done${total.looked ? `, searched ${count(total.looked)} tasks` : ""}…`;
  if (total.of > total.looked) {
    bar.max = total.of;
    bar.value = total.looked;
  } else bar.removeAttribute("value");
}

function summary(action, moved) {
  const tasks = moved === 1 ? "1 task" : `${moved.toLocaleString("en")} tasks`;
  if (action === "discard") return `Discarded ${tasks}.`;
  return action === "cancel" ? `Cancelled ${tasks} or requested cancellation.` : `Retried ${tasks}.`;
}
