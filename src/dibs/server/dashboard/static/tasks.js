// The tasks page: a search that goes on by itself until the page is full, ticked rows, things to do to many.

import { startBulk } from "./bulk.js";

const PAGE = 50;

startBulk();
startPicking();
goOn();

function startPicking() {
  const form = document.getElementById("bulk");
  if (!form.querySelector("[name=which]")) return;
  form.addEventListener("change", (event) => {
    if (event.target.id === "pick-all") boxes().forEach((box) => (box.checked = event.target.checked));
    if (event.target.matches("[type=checkbox]")) form.querySelector("[name=which][value=picked]").checked = true;
    tellPicked();
  });
  document.addEventListener("dibs:replaced", tellPicked);
  tellPicked();
}

function boxes() {
  return [...document.querySelectorAll("#bulk input[name=ids]")];
}

function tellPicked() {
  const all = boxes();
  const ticked = all.filter((box) => box.checked).length;
  document.getElementById("picked-words").textContent = ticked ? `${ticked} ticked` : "those ticked";
  const head = document.getElementById("pick-all");
  if (head) {
    head.checked = ticked > 0 && ticked === all.length;
    head.indeterminate = ticked > 0 && ticked < all.length;
  }
}

// One request looks for a moment only. Ask for what comes after it, until there is a page to show.
async function goOn() {
  const words = document.getElementById("looking");
  if (!words) return;
  const total = { looked: lookedIn(document), found: Number(words.dataset.found), next: words.dataset.next };
  const stop = stopButton(total);
  while (total.next && total.found < PAGE && !total.stopped) {
    tellLooked(words, total, "…", stop);
    if (!(await lookOn(total))) break;
  }
  if (!total.next && total.found === 0) words.textContent = `Looked through ${total.looked ? count(total.looked) : "all"} tasks: none matches.`;
  else tellLooked(words, total, ".", total.next ? link(total.next, total.found < PAGE ? "Look on" : "Older →") : "");
}

async function lookOn(total) {
  const response = await fetch(total.next, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!response?.ok) return false;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const rows = [...page.querySelectorAll("#rows > tr")];
  document.getElementById("rows").append(...rows.map((row) => document.importNode(row, true)));
  const words = page.getElementById("looking");
  total.looked += lookedIn(page);
  total.found += rows.length;
  total.next = words ? words.dataset.next : page.getElementById("older")?.getAttribute("href");
  return true;
}

function lookedIn(page) {
  return Number(page.getElementById("found").dataset.looked);
}

// A key that is limited to queues is not told how many tasks were looked through: most may be of other queues.
function tellLooked(words, total, end, then) {
  const found = total.looked ? `Looked through ${count(total.looked)} tasks, found` : "Found";
  words.replaceChildren(`${found} ${count(total.found)}${end} `, then);
}

function count(number) {
  return number.toLocaleString("en");
}

function stopButton(total) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Stop";
  button.className = "quiet";
  button.addEventListener("click", () => (total.stopped = true));
  return button;
}

function link(href, words) {
  const element = document.createElement("a");
  element.href = href;
  element.textContent = words;
  return element;
}
