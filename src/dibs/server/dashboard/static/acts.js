// Action buttons: ask for confirmation before destructive actions, submit without a reload, show the result as a notice.

import { replaceParts } from "./live.js";

const DOUBLE_CLICK = 500; // milliseconds in which a second click belongs to the first click

export function startActs() {
  if (document.querySelector("#notice p")) hideLater(6000);
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("form[data-act]")) return;
    event.preventDefault();
    act(form, event.submitter);
  });
}

async function act(form, button) {
  if (form.dataset.confirm && !(await confirmed(form.dataset.confirm, button?.textContent))) return;
  if (button) button.disabled = true;
  try {
    const response = await post(form.getAttribute("action"), new URLSearchParams(new FormData(form, button)));
    const text = await response.text();
    if (response.redirected && !isCurrentPage(response.url)) location.assign(response.url);
    else if (response.ok) showPageNotice(replaceParts(text, form));
    else showProblem(new DOMParser().parseFromString(text, "text/html"));
  } catch {
    showNotice("The server did not answer. The action may or may not have been done.", true);
  } finally {
    if (button) button.disabled = false;
  }
}

// A request that changes something, with the CSRF token of the page.
export function post(url, body, accept = "text/html") {
  const csrf = document.querySelector("meta[name=csrf]").content;
  return fetch(url, { method: "POST", body, headers: { Accept: accept, "X-CSRF-Token": csrf } });
}

function isCurrentPage(url) {
  return new URL(url).pathname === location.pathname;
}

// Ask in a dialog; resolves to true if the user confirms. The dialog may open under the cursor: the second click of a
// double click must not confirm it.
export function confirmed(question, label) {
  const dialog = document.getElementById("confirm");
  const yes = document.getElementById("confirm-yes");
  document.getElementById("confirm-text").textContent = question;
  yes.textContent = label || "Confirm";
  yes.classList.add("settling"); // ignores clicks for a moment; the keyboard works at once
  clearTimeout(settling);
  settling = setTimeout(() => yes.classList.remove("settling"), DOUBLE_CLICK);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

function showPageNotice(page) {
  const words = page.querySelector("#notice p");
  if (words) showNotice(words.textContent);
}

function showProblem(page) {
  const words = [...page.querySelectorAll("#problem .problem-text, #problem .soft")].map((each) => each.textContent);
  showNotice(words.join(" ") || "The request failed.", true);
}

let hiding = null;
let settling = null;

// Show a notice over the page for some seconds.
export function showNotice(words, bad = false) {
  const place = document.getElementById("notice");
  const line = document.createElement("p");
  line.textContent = words;
  line.classList.toggle("bad", bad);
  place.replaceChildren(line);
  hideLater(bad ? 15000 : 6000);
}

function hideLater(milliseconds) {
  clearTimeout(hiding);
  hiding = setTimeout(() => document.getElementById("notice").replaceChildren(), milliseconds);
}
