// Keyboard shortcuts: open pages, move through tables, select and open rows.

import { prefix } from "./prefix.js";

let going = false;

export function startKeyboard() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (press(event.key)) event.preventDefault();
  });
  document.getElementById("help-button")?.addEventListener("click", help);
}

function isWriting(element) {
  return element.matches("input:not([type=checkbox]), textarea, select") || element.isContentEditable;
}

function press(key) {
  if (going) {
    going = false;
    const link = document.querySelector(`.menu a[data-key="${CSS.escape(key)}"]`);
    link?.click();
    return Boolean(link);
  }
  const does = { "/": search, "?": help, g: () => (going = true), j: () => move(1), k: () => move(-1), x: select, Enter: open };
  return does[key] ? does[key]() !== false : false;
}

function search() {
  const field = document.querySelector("[data-search]");
  if (field) field.focus();
  else location.assign(`${prefix}/tasks#search`);
}

function help() {
  document.getElementById("help")?.showModal();
}

function rows() {
  return [...document.querySelectorAll("main tbody tr[data-row]")];
}

function move(step) {
  const all = rows();
  if (!all.length) return false;
  const before = all.findIndex((row) => row.classList.contains("here"));
  const next = all[Math.min(all.length - 1, Math.max(0, before + step))];
  all[before]?.classList.remove("here");
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a[data-open], a")?.focus({ preventScroll: true });
}

function select() {
  const box = document.querySelector("tr.here input[type=checkbox]");
  if (!box) return false;
  box.click();
}

function open() {
  if (document.activeElement?.matches("a, button, summary, input")) return false;
  const link = document.querySelector("tr.here a[data-open], tr.here a");
  if (!link) return false;
  link.click();
}
