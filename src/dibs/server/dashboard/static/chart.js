// A chart of lines or stacked areas over time, drawn as SVG. The pointer or the arrow keys show values; the legend hides
// and shows series.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 46;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;

export class Chart {
  constructor(element, legend, series, { stacked = false, format = String }) {
    Object.assign(this, { element, series, stacked, format, points: [], frame: null, at: null });
    this.hidden = new Set(series.filter((each) => each.off).map((each) => each.name));
    this.svg = element.appendChild(make("svg", { "aria-hidden": "true" }));
    this.tip = element.appendChild(document.createElement("div"));
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.fillLegend(legend);
    element.addEventListener("pointermove", (event) => this.point(event.clientX));
    element.addEventListener("pointerdown", (event) => this.point(event.clientX));
    element.addEventListener("pointerleave", () => this.leave());
    element.addEventListener("keydown", (event) => this.press(event));
    element.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => this.paint()).observe(element);
  }

  draw(frame, points) {
    this.frame = frame;
    this.points = points.filter((point) => point.at >= frame.from);
    this.paint();
  }

  fillLegend(legend) {
    for (const { name, label } of this.series) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = name;
      button.textContent = label;
      button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
      button.addEventListener("click", () => {
        if (!this.hidden.delete(name)) this.hidden.add(name);
        button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
        this.paint();
      });
      legend.append(button);
    }
  }

  // Coordinates

  get shown() {
    return this.series.filter((each) => !this.hidden.has(each.name));
  }

  x(at) {
    return LEFT + ((at - this.frame.from) / (this.frame.until - this.frame.from)) * (this.width - LEFT - RIGHT);
  }

  y(value) {
    return this.height - BOTTOM - (value / this.top) * (this.height - TOP - BOTTOM);
  }

  // Painting

  paint() {
    if (!this.frame) return;
    this.width = this.element.clientWidth;
    this.height = this.element.clientHeight;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.replaceChildren();
    if (!this.points.length) {
      this.showText("No data yet");
      return;
    }
    this.top = nice(Math.max(...this.points.map((point) => this.highest(point)), 0));
    this.grid();
    const stretches = [...split(this.points, this.frame.gap)];
    if (this.stacked) this.areas(stretches);
    else for (const { name } of this.shown) for (const part of stretches) this.line(name, part);
    this.mark();
  }

  highest(point) {
    const values = this.shown.map(({ name }) => point.values[name] ?? 0);
    return this.stacked ? values.reduce((sum, value) => sum + value, 0) : Math.max(0, ...values);
  }

  showText(words) {
    const text = make("text", { x: this.width / 2, y: this.height / 2, class: "none" });
    text.textContent = words;
    this.svg.append(text);
  }

  grid() {
    for (const value of [0, this.top / 2, this.top]) {
      const y = this.y(value);
      this.svg.append(make("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }));
      this.label(LEFT - 6, y + 4, this.format(value), "end");
    }
    for (const [at, words] of times(this.frame, this.width)) this.label(this.x(at), this.height - 4, words, "middle");
  }

  label(x, y, words, anchor) {
    const text = make("text", { x, y, "text-anchor": anchor });
    text.textContent = words;
    this.svg.append(text);
  }

  areas(stretches) {
    for (const part of stretches) {
      if (part.length === 1) this.lone(part[0]);
      let floor = part.map(() => 0);
      for (const { name } of this.shown) {
        const roof = part.map((point, index) => floor[index] + (point.values[name] ?? 0));
        const up = part.map((point, index) => `${this.x(point.at)},${this.y(roof[index])}`);
        const down = part.map((point, index) => `${this.x(point.at)},${this.y(floor[index])}`).reverse();
        this.svg.append(make("path", { class: `area ${name}`, d: `M${up.join("L")}L${down.join("L")}Z` }));
        if (roof.some((value, index) => value > floor[index])) this.svg.append(make("path", { class: `edge ${name}`, d: `M${up.join("L")}` }));
        floor = roof;
      }
    }
  }

  line(name, part) {
    const known = part.filter((point) => point.values[name] !== null);
    if (!known.length) return;
    if (known.length === 1) this.dot("lone", name, known[0].at, known[0].values[name]);
    const places = known.map((point) => `${this.x(point.at)},${this.y(point.values[name])}`);
    this.svg.append(make("path", { class: `line ${name}`, d: `M${places.join("L")}` }));
  }

  // A single point is drawn as a dot: it has neither a line nor an area.
  lone(point) {
    let roof = 0;
    for (const { name } of this.shown) {
      roof += point.values[name] ?? 0;
      if (point.values[name] || !this.highest(point)) this.dot("lone", name, point.at, roof);
    }
  }

  dot(kind, name, at, value) {
    this.svg.append(make("circle", { class: `${kind} ${name}`, cx: this.x(at), cy: this.y(value), r: 3.5 }));
  }

  // Pointer and keyboard

  point(clientX) {
    if (!this.points.length) return;
    const x = clientX - this.element.getBoundingClientRect().left;
    const distance = (point) => Math.abs(this.x(point.at) - x);
    this.at = this.points.reduce((best, point) => (distance(point) < distance(best) ? point : best)).at;
    this.paint();
  }

  press(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.points.length) return;
    event.preventDefault();
    const before = this.points.findIndex((point) => point.at === this.at);
    const next = before < 0 ? this.points.length - 1 : Math.min(this.points.length - 1, Math.max(0, before + step));
    this.at = this.points[next].at;
    this.paint();
  }

  leave() {
    this.at = null;
    this.tip.hidden = true;
    this.paint();
  }

  mark() {
    const point = this.points.find((each) => each.at === this.at);
    this.tip.hidden = !point;
    if (!point) return;
    const x = this.x(point.at);
    this.svg.append(make("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: this.height - BOTTOM }));
    let floor = 0;
    for (const { name } of this.shown) {
      const value = point.values[name];
      if (value === null) continue;
      this.dot("dot", name, point.at, floor + value);
      if (this.stacked) floor += value;
    }
    this.fillTip(point, x);
  }

  fillTip(point, x) {
    const head = document.createElement("b");
    head.textContent = new Date(point.at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
    const rows = this.shown.toReversed().flatMap(({ name, label }) => [span(label, `key ${name}`), span(exact(this.format, point.values[name]))]);
    this.tip.replaceChildren(head, ...rows);
    const width = this.tip.offsetWidth;
    this.tip.style.left = `${x + width + 16 < this.width ? x + 10 : Math.max(0, x - width - 10)}px`;
  }
}

function span(words, kind = "") {
  const element = document.createElement("span");
  element.textContent = words;
  element.className = kind;
  return element;
}

function make(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// Split the points at gaps without data, so that lines are interrupted there.
function* split(points, gap) {
  let part = [];
  for (const point of points) {
    if (part.length && point.at - part.at(-1).at > gap) {
      yield part;
      part = [];
    }
    part.push(point);
  }
  yield part;
}

// The next round number: 1, 2, 5, 10, 20, …
function nice(value) {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((each) => each * size).find((each) => each >= value);
}

const STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

// The labels of the time axis, at full minutes, hours or days of the user's time zone.
function* times({ from, until }, width) {
  const least = until - from > 2 * 86400 ? 86400 : 0; // over several days, a label with only the hour would be ambiguous
  const step = STEPS.find((each) => each >= least && ((until - from) / each) * 75 < width) ?? 86400 * 2;
  const shift = new Date(until * 1000).getTimezoneOffset() * 60;
  for (let at = Math.ceil((from - shift) / step) * step + shift; at < until; at += step) {
    if ((at - from) / (until - from) < 0.03 || (until - at) / (until - from) < 0.03) continue;
    const moment = new Date(at * 1000);
    yield [at, step >= 86400 ? moment.toLocaleDateString([], { weekday: "short", day: "numeric" }) : moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" })];
  }
}

// 0, 0.25, 12, 1.2k, 3M
export function amount(value) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (value >= size) return `${trim(value / (unit === "k" ? 1e3 : size))}${unit}`;
  }
  return value >= 1000 ? Math.round(value).toLocaleString("en") : trim(value);
}

// 3 ms, 1.2 s, 4 min 10 s, 3 h 5 min, 2 d 4 h
export function duration(seconds) {
  if (seconds < 1) return seconds === 0 ? "0" : `${Number((seconds * 1000).toPrecision(3))} ms`;
  if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
  for (const [size, unit, smaller, name] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (seconds < size) continue;
    const rest = Math.floor((seconds % size) / smaller);
    return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${name}` : ""}`;
  }
}

function trim(value) {
  return String(Number(value.toPrecision(3)));
}

function exact(format, value) {
  if (value === null || value === undefined) return "–";
  return format === amount ? Number(value.toFixed(2)).toLocaleString("en") : format(value);
}
