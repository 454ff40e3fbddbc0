// Zoom in the graph of a workflow. Panning is scrolling, by mouse, touch or arrow keys. Without this script the graph
// has its original size.

import { rough } from "./times.js";

const STEP = 1.25;
const LEAST = 0.15;
const MOST = 3;

let scale = 1;

function parts() {
  const frame = document.getElementById("graph");
  return { frame, svg: frame?.querySelector("svg.flow") };
}

function drawnSize(svg) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  return { width, height };
}

function fitting() {
  const { frame, svg } = parts();
  const { width, height } = drawnSize(svg);
  return Math.min(1, frame.clientWidth / width, maxHeight(frame) / height);
}

function maxHeight(frame) {
  return parseFloat(getComputedStyle(frame).maxHeight) || frame.clientHeight;
}

// The point in the middle stays in the middle.
function resize(wanted) {
  const { frame, svg } = parts();
  if (!svg) return;
  const before = scale;
  scale = Math.min(MOST, Math.max(LEAST, wanted));
  const middle = { x: frame.scrollLeft + frame.clientWidth / 2, y: frame.scrollTop + frame.clientHeight / 2 };
  apply();
  frame.scrollTo((middle.x * scale) / before - frame.clientWidth / 2, (middle.y * scale) / before - frame.clientHeight / 2);
}

function apply() {
  const { svg } = parts();
  if (!svg) return;
  const { width, height } = drawnSize(svg);
  svg.setAttribute("width", Math.round(width * scale));
  svg.setAttribute("height", Math.round(height * scale));
}

const SIZES = { in: () => scale * STEP, out: () => scale / STEP, fit: fitting, one: () => 1 };
const KEYS = { "+": "in", "=": "in", "-": "out", 0: "fit", 1: "one" };

document.getElementById("zoom")?.removeAttribute("hidden");
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-zoom]");
  if (button) resize(SIZES[button.dataset.zoom]());
});
document.addEventListener("keydown", (event) => {
  if (!event.target.closest?.("#graph") || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  resize(SIZES[KEYS[event.key]]());
});
document.addEventListener("wheel", (event) => {
  if (!event.ctrlKey || !event.target.closest?.("#graph")) return;
  event.preventDefault();
  resize(scale * (event.deltaY < 0 ? STEP : 1 / STEP));
}, { passive: false });

// Show the whole graph if it is still readable.
if (parts().svg && fitting() >= 0.55) resize(fitting());
document.addEventListener("dibs:replaced", apply);

setInterval(() => {
  for (const label of document.querySelectorAll("svg.flow text[data-since]")) {
    const words = label.textContent.split(" · ").slice(0, -1);
    words.push(rough(Math.max(0, (Date.now() - Date.parse(label.dataset.since)) / 1000)));
    label.textContent = words.join(" · ");
  }
}, 1000);
