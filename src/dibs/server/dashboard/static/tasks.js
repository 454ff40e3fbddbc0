// The tasks page: continues the search until the page is full, selects rows, starts bulk actions.

import { startBulk } from "./bulk.js";

const PAGE = 50;

startBulk();
startSelection();
continueSearch();

function startSelection() {
  const form = document.getElementById("bulk");
  if (!form.querySelector("[name=which]")) return;
  form.addEventListener("change", (event) => {
    if (event.target.id === "pick-all") boxes().forEach((box) => (box.checked = event.target.checked));
    if (event.target.matches("[type=checkbox]")) form.querySelector("[name=which][value=picked]").checked = true;
    showSelection();
  });
  document.addEventListener("dibs:replaced", showSelection);
  showSelection();
}

function boxes() {
  return [...document.querySelectorAll("#bulk input[name=ids]")];
}

function showSelection() {
  const all = boxes();
  const selected = all.filter((box) => box.checked).length;
  document.getElementById("picked-words").textContent = selected ? `${selected} selected` : "selected tasks";
  const head = document.getElementById("pick-all");
  if (head) {
    head.checked = selected > 0 && selected === all.length;
    head.indeterminate = selected > 0 && selected < all.length;
  }
}

// A request searches for a limited time. Continue with further requests until the page is full.
async function continueSearch() {
  const words = document.getElementById("search-status");
  if (!words) return;
  const total = { looked: searchedIn(document), found: Number(words.dataset.found), next: words.dataset.next };
  const stop = stopButton(total);
  while (total.next && total.found < PAGE && !total.stopped) {
    showSearched(words, total, "…", stop);
    if (!(await searchNext(total))) break;
  }
  if (!total.next && total.found === 0) words.textContent = `Searched ${total.looked ? count(total.looked) : "all"} tasks: none matches.`;
  else showSearched(words, total, ".", total.next ? link(total.next, total.found < PAGE ? "Continue" : "Older →") : "");
}

async function searchNext(total) {
  const response = await fetch(total.next, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!response?.ok) return false;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const rows = [...page.querySelectorAll("#rows > tr")];
  document.getElementById("rows").append(...rows.map((row) => document.importNode(row, true)));
  const words = page.getElementById("search-status");
  total.looked += searchedIn(page);
  total.found += rows.length;
  total.next = words ? words.dataset.next : page.getElementById("older")?.getAttribute("href");
  return true;
}

function searchedIn(page) {
  return Number(page.getElementById("found").dataset.looked);
}

// A key that is limited to queues does not see the number of searched tasks: most may be in other queues.
function showSearched(words, total, end, then) {
  const found = total.looked ? `Searched ${count(total.looked)} tasks, found` : "Found";
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
