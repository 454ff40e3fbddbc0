// Relative times, updated every second: "3 min ago" becomes "4 min ago".

export function startTimes() {
  setInterval(() => document.querySelectorAll("time[datetime]").forEach(update), 1000);
}

function update(element) {
  const passed = (Date.now() - Date.parse(element.dateTime)) / 1000;
  const words = ago(passed);
  if (element.textContent !== words) element.textContent = words;
}

export function ago(passed) {
  if (Math.abs(passed) < 1) return "now";
  return passed > 0 ? `${rough(passed)} ago` : `in ${rough(-passed)}`;
}

export function rough(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}
