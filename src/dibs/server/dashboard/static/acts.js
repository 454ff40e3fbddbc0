// Buttons that do something: with a question before what stops or deletes, without a reload, the answer as a message.

import { replaceParts } from "./live.js";

const DOUBLE_CLICK = 500; // milliseconds in which a second click belongs to the first one

export function startActs() {
  if (document.querySelector("#said p")) forgetSoon(6000);
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
    if (response.redirected && !sameplace(response.url)) location.assign(response.url);
    else if (response.ok) say(replaceParts(text));
    else sayProblem(new DOMParser().parseFromString(text, "text/html"));
  } catch {
    tell("The server did not answer; nothing may have been done.", true);
  } finally {
    if (button) button.disabled = false;
  }
}

// A request that changes something, with the token that proves that it comes from our page.
export function post(url, body, accept = "text/html") {
  const csrf = document.querySelector("meta[name=csrf]").content;
  return fetch(url, { method: "POST", body, headers: { Accept: accept, "X-CSRF-Token": csrf } });
}

function sameplace(url) {
  return new URL(url).pathname === location.pathname;
}

// Ask in our own dialog; true if the answer is yes. The dialog may open under the cursor: the second click of a double
// click must not answer it.
export function confirmed(question, label) {
  const dialog = document.getElementById("confirm");
  const yes = document.getElementById("confirm-yes");
  document.getElementById("confirm-text").textContent = question;
  yes.textContent = label || "Do it";
  yes.classList.add("settling"); // takes no clicks; the keyboard reaches it
  clearTimeout(settling);
  settling = setTimeout(() => yes.classList.remove("settling"), DOUBLE_CLICK);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

function say(page) {
  const words = page.querySelector("#said p");
  if (words) tell(words.textContent);
}

function sayProblem(page) {
  const words = [...page.querySelectorAll("#problem .problem-text, #problem .soft")].map((each) => each.textContent);
  tell(words.join(" ") || "That did not work.", true);
}

let forgetting = null;
let settling = null;

// Show a sentence over the page for a while.
export function tell(words, bad = false) {
  const place = document.getElementById("said");
  const line = document.createElement("p");
  line.textContent = words;
  line.classList.toggle("bad", bad);
  place.replaceChildren(line);
  forgetSoon(bad ? 15000 : 6000);
}

function forgetSoon(milliseconds) {
  clearTimeout(forgetting);
  forgetting = setTimeout(() => document.getElementById("said").replaceChildren(), milliseconds);
}
