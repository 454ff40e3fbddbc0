// The overview page: figures that follow the live statistics, and charts.

import { Chart, amount, duration } from "./chart.js";
import { prefix } from "./prefix.js";

const OPEN = ["claimed", "pending", "scheduled", "blocked"]; // unfinished states, shown by default
const FINISHED = ["failed", "cancelled", "completed"];
const FLOWS = ["enqueued", "completed", "failed"];
const PERCENTILES = ["p50", "p95", "p99"];

const place = document.getElementById("charts");
const charts = {};
let loadedAt = -Infinity;
let step = 5;

function start() {
  const depth = [...OPEN, ...FINISHED].map((name) => ({ name, label: name, off: FINISHED.includes(name) }));
  make("depth", depth, { stacked: true, format: amount });
  make("flow", FLOWS.map((name) => ({ name, label: name })), { format: amount });
  make("wait", PERCENTILES.map((name) => ({ name, label: name })), { format: duration });
  make("run", PERCENTILES.map((name) => ({ name, label: name })), { format: duration });
  load();
  document.addEventListener("dibs:stats", (event) => {
    follow(event.detail);
    if (!document.hidden && performance.now() - loadedAt > Math.min(step, 60) * 1000) load();
  });
  document.addEventListener("visibilitychange", () => document.hidden || load());
}

function make(name, series, options) {
  const element = document.getElementById(`chart-${name}`);
  if (element) charts[name] = new Chart(element, document.getElementById(`legend-${name}`), series, options);
}

async function load() {
  loadedAt = performance.now();
  try {
    const response = await fetch(`${prefix}/charts?window=${place.dataset.window}`, { headers: { Accept: "application/json" } });
    if (response.ok) show(await response.json());
  } catch {
    // the status in the corner shows that there is no connection
  }
}

function show({ span, step: seconds, states, flows, points }) {
  step = seconds;
  const until = Math.max(Date.now() / 1000, points.at(-1)?.[0] ?? 0);
  // For a new store, start the chart later: its few points would be a thin line at the edge.
  const from = Math.max(until - span, Math.min(points[0]?.[0] ?? 0, until - span / 5));
  const frame = { from, until, gap: Math.max(3 * step, 150) };
  const named = (names, row) => Object.fromEntries(names.map((name, index) => [name, row?.[index] ?? null]));
  charts.depth?.draw(frame, points.map(([at, depth]) => ({ at, values: named(states, depth) })));
  charts.flow?.draw(frame, points.filter((point) => point[2]).map(([at, , rates]) => ({ at, values: named(flows, rates) })));
  charts.wait?.draw(frame, points.filter((point) => point[3]).map(([at, , , wait]) => ({ at, values: named(PERCENTILES, wait) })));
  charts.run?.draw(frame, points.filter((point) => point[4]).map(([at, , , , run]) => ({ at, values: named(PERCENTILES, run) })));
}

function follow(stats) {
  figure("pending", whole(stats.depth.pending));
  figure("claimed", whole(stats.depth.claimed));
  figure("completed", whole(stats.rates.completed * 60));
  figure("failed", whole(stats.rates.failed * 60));
  figure("oldest", stats.oldest === null ? "–" : duration(stats.oldest));
  figure("workers", whole(stats.workers));
  const dead = figure("dead", whole(stats.dead));
  dead?.closest(".figure").classList.toggle("bad", stats.dead > 0);
}

function figure(name, text) {
  const element = document.getElementById(`figure-${name}`);
  if (element && element.textContent !== text) element.textContent = text;
  return element;
}

function whole(value) {
  return Math.round(value).toLocaleString("en");
}

start();
