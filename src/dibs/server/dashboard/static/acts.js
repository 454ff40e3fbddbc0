// Buttons that do something: asked before where it matters, done without a reload, the answer shown at the top.

import { replaceParts } from "./live.js";

export function startActs() {
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

// Ask in our own dialog; true if the answer is yes.
export function confirmed(question, label) {
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-text").textContent = question;
  document.getElementById("confirm-yes").textContent = label || "Do it";
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

// Show a sentence at the top for a while.
export function tell(words, bad = false) {
  const place = document.getElementById("said");
  const line = document.createElement("p");
  line.textContent = words;
  line.classList.toggle("bad", bad);
  place.replaceChildren(line);
  clearTimeout(forgetting);
  forgetting = setTimeout(() => place.replaceChildren(), bad ? 15000 : 6000);
}
