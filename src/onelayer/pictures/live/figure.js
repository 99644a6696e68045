/* Canvases: frames with axes, zoom and a point that can be dragged; bars, maps and curves. Colours come from the page. */
"use strict";

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const SIGNED = ["#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b"];
const parsed = (list) => list.map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
const DARK = ["#6db3f2", "#4393c3", "#2f6690", "#24435c", "#22272b", "#59392f", "#96503a", "#d6604d", "#ff8a70"];
const SCALES = { values: parsed(VIRIDIS), signed: parsed(SIGNED), dark: parsed(DARK) };
const NIGHT = matchMedia("(prefers-color-scheme: dark)");
const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function shade(scale, t) {
  const stops = SCALES[scale === "signed" && NIGHT.matches ? "dark" : scale], at = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2), f = at - i;
  return stops[i].map((low, k) => Math.round(low + f * (stops[i + 1][k] - low)));
}

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const raised = (power) => String(Number(power)).replace("-", "⁻").replace(/\d/g, (d) => RAISED[d]);

/* A number as a reader writes it, with so many digits: 0.1318, −5.82·10⁻³. */
function short(value, digits = 4) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return Number(value.toPrecision(digits)).toString().replace("-", "−");
  const [mantissa, power] = value.toExponential(digits - 1).split("e"), trimmed = String(Number(mantissa));
  return `${{ 1: "", "-1": "−" }[trimmed] ?? `${trimmed}·`}10${raised(power)}`.replace("-", "−");
}

/* An upper bound with three digits, rounded up: what is written is proved too. */
function shortUp(value) {
  const near = Number(value.toPrecision(3));
  return short(near >= value ? near : near + 10 ** (Math.floor(Math.log10(near)) - 2), 3);
}

/* A lower bound with three digits, rounded down. */
function shortDown(value) {
  const near = Number(value.toPrecision(3));
  return short(near <= value ? near : near - 10 ** (Math.floor(Math.log10(near)) - 2), 3);
}

/* A sentence of a certificate with the signs of mathematics; its digits stay as they are. */
function typeset(text) {
  return text.replace(/(^|[^\d.])1e([+-]?\d+)/g, (_, before, power) => `${before}10${raised(power)}`)
    .replace(/(\d)e([+-]?\d+)/g, (_, digit, power) => `${digit}·10${raised(power)}`).replaceAll("<=", "≤").replaceAll(">=", "≥").replaceAll("T - f", "T − f");
}

/* A canvas as large as its place, in device pixels; returns its context and size in CSS pixels. */
function prepared(canvas) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11.5px system-ui, sans-serif";
  return { pen, width, height };
}

/* About ``most`` round numbers between low and high, as [place, text]; the texts tell neighbours apart at any zoom. */
function ticks(low, high, most = 6) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [[low, short(low)]];
  const step = 10 ** Math.floor(Math.log10(span / 4)), size = [1, 2, 5, 10].map((k) => k * step).find((s) => span / s <= most) || 10 * step;
  const places = Math.max(0, -Math.floor(Math.log10(size) + 1e-9)), found = [];
  const plain = Math.max(Math.abs(low), Math.abs(high)) < 1e5 && (places <= 3 || Math.max(Math.abs(low), Math.abs(high)) >= 1e-2);
  for (let k = Math.ceil(low / size - 1e-9); k * size <= high + size * 1e-9; k++) {
    const t = k * size;
    found.push([t, plain ? t.toFixed(places).replace("-", "−").replace(/^−(0(\.0*)?)$/, "$1") : short(t, 3)]);
  }
  return found;
}

/* Bars over 0, 1, ...; values may be signed, ``mark`` is drawn in another colour. Returns which bar lies below a pixel. */
function bars(canvas, values, { color = "accent", mark = -1, ends = null, level = null } = {}) {
  const { pen, width, height } = prepared(canvas), foot = ends ? 15 : 2;
  const low = Math.min(0, ...values), high = Math.max(0, ...values), span = high - low || 1;
  const room = height - foot - 2, step = width / values.length;
  const y = (value) => 2 + (1 - (value - low) / span) * room;
  pen.fillStyle = ink("rule");
  pen.fillRect(0, Math.round(y(0)), width, 1);
  values.forEach((value, m) => {
    pen.fillStyle = value < 0 ? ink("negative") : ink(m === mark ? "mark" : color);
    pen.fillRect(m * step + Math.min(step * 0.1, 3), Math.min(y(value), y(0)), Math.max(step - Math.min(step * 0.2, 6), 0.6), Math.abs(y(value) - y(0)));
  });
  pen.fillStyle = ink("ink");
  if (level) level.forEach((value, m) => pen.fillRect(m * step + 1, y(value) - 1, Math.max(step - 2, 1), 2));
  if (ends) edges(pen, ends, width, height);
  return (px) => Math.min(Math.max(Math.floor(px / step), 0), values.length - 1);
}

/* A text that stays readable on lines. */
function labelled(pen, text, x, y) {
  pen.fillStyle = ink("paper");
  pen.fillRect(x - 3, y - 10, pen.measureText(text).width + 6, 13);
  pen.fillStyle = ink("mark");
  pen.fillText(text, x, y);
}

/* Two texts below the left and the right end. */
function edges(pen, [left, right], width, height) {
  pen.fillStyle = ink("quiet");
  pen.fillText(left, 0, height - 3);
  pen.textAlign = "right";
  pen.fillText(right, width, height - 3);
  pen.textAlign = "left";
}

/* A map of rows x columns, the first row on top; signed values get a scale symmetric about zero. */
function heatmap(canvas, values, rows, columns, { scale = "values", range = null } = {}) {
  const { pen, width, height } = prepared(canvas), most = values.reduce((m, v) => Math.max(m, Math.abs(v)), 0) || 1;
  const [least, high] = range || (scale === "signed" ? [-most, most] : [0, most]), gap = width / columns > 9 && height / rows > 9 ? 1 : 0;
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      const left = Math.round((j * width) / columns), top = Math.round((i * height) / rows);
      pen.fillStyle = `rgb(${shade(scale, (values[i * columns + j] - least) / (high - least || 1))})`;
      pen.fillRect(left, top, Math.round(((j + 1) * width) / columns) - left - gap, Math.round(((i + 1) * height) / rows) - top - gap);
    }
  const cell = (p, size, count) => Math.min(Math.max(Math.floor((p / size) * count), 0), count - 1);
  return (px, py) => [cell(py, height, rows), cell(px, width, columns)];
}

/* A scale of colours beside a map. */
function colourbar(pen, scale, low, high, { left, top, height }) {
  const width = 11;
  for (let k = 0; k < height; k++) {
    pen.fillStyle = `rgb(${shade(scale, 1 - k / height)})`;
    pen.fillRect(left, top + k, width, 1.5);
  }
  pen.fillStyle = ink("quiet");
  for (const [t, text] of ticks(low, high, 5)) pen.fillText(text, left + width + 4, Math.min(Math.max(top + (1 - (t - low) / (high - low || 1)) * height + 4, top + 8), top + height));
}

/* A frame with axes. View: {x: [low, high], y: [low, high]}. Dragging moves the point, with shift the view; once the
   frame was clicked the wheel zooms; a double click gives the whole back. */
class Frame {
  constructor(canvas, whole, handlers) {
    Object.assign(this, { canvas, whole, ...handlers });
    this.view = structuredClone(whole);
    this.margin = { left: 52, right: 12, top: 10, bottom: 34 };
    this.locked = { x: false, y: false };
    this.beside = () => [this];
    canvas.addEventListener("pointerdown", (event) => this.pressed(event));
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    canvas.addEventListener("pointerup", () => { this.drag = null; });
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("pointerleave", () => this.onHover(null));
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  reset() {
    this.view = structuredClone(this.whole);
    this.onView();
  }

  inner() {
    const m = this.margin;
    return { left: m.left, top: m.top, width: this.canvas.clientWidth - m.left - m.right, height: this.canvas.clientHeight - m.top - m.bottom };
  }

  toX(px) { const p = this.inner(), [a, b] = this.view.x; return a + ((px - p.left) / p.width) * (b - a); }
  toY(py) { const p = this.inner(), [a, b] = this.view.y; return b - ((py - p.top) / p.height) * (b - a); }
  atX(x) { const p = this.inner(), [a, b] = this.view.x; return p.left + ((x - a) / (b - a)) * p.width; }
  atY(y) { const p = this.inner(), [a, b] = this.view.y; return p.top + ((b - y) / (b - a)) * p.height; }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [this.toX(event.clientX - box.left), this.toY(event.clientY - box.top)];
  }

  pressed(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = event.shiftKey ? "view" : "point";
    this.grip = this.place(event);
    this.moved(event);
  }

  moved(event) {
    const [x, y] = this.place(event);
    if (this.drag === "point") this.onPoint(x, y);
    if (this.drag === "view") this.pan(this.grip[0] - x, this.grip[1] - y);
    this.onHover([x, y]);
  }

  pan(dx, dy) {
    for (const [axis, by] of [["x", dx], ["y", dy]]) {
      if (this.locked[axis]) continue;
      const [a, b] = this.view[axis], [low, high] = this.whole[axis], move = Math.min(Math.max(by, low - a), high - b);
      this.view[axis] = [a + move, b + move];
    }
    this.onView();
  }

  /* The wheel belongs to the page until the frame is chosen, so that scrolling past it does not zoom. */
  wheel(event) {
    if (document.activeElement !== this.canvas && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(this.place(event), event.deltaY > 0 ? 1.25 : 0.8);
  }

  zoom([x, y], factor) {
    for (const [axis, c] of [["x", x], ["y", y]]) {
      if (this.locked[axis]) continue;
      const [a, b] = this.view[axis], [low, high] = this.whole[axis];
      const next = [Math.max(low, c + (a - c) * factor), Math.min(high, c + (b - c) * factor)];
      if (next[1] - next[0] > 1e-9 * (high - low)) this.view[axis] = next;
    }
    this.onView();
  }

  get zoomed() {
    return ["x", "y"].some((axis) => !this.locked[axis] && (this.view[axis][0] > this.whole[axis][0] || this.view[axis][1] < this.whole[axis][1]));
  }

  /* Clear, write the axes, and clip to the inside. */
  begin([below, beside], grid = false) {
    const { pen, width, height } = prepared(this.canvas), across = ticks(...this.view.x), up = ticks(...this.view.y, this.canvas.clientHeight < 220 ? 3 : 6);
    this.need = Math.ceil(Math.max(...up.map(([, text]) => pen.measureText(text).width))) + (beside ? 26 : 10);
    this.margin.left = Math.max(...this.beside().map((frame) => frame.need || 0)); // frames above each other stay aligned
    this.margin.bottom = below ? 34 : 18;
    const p = this.inner();
    pen.lineWidth = 1;
    pen.strokeStyle = ink("rule");
    for (const [t] of grid ? across : []) pen.strokeRect(Math.round(this.atX(t)) + 0.5, p.top, 0, p.height);
    for (const [t] of grid ? up : []) pen.strokeRect(p.left, Math.round(this.atY(t)) + 0.5, p.width, 0);
    pen.strokeRect(p.left, p.top, p.width, p.height);
    pen.fillStyle = ink("quiet");
    pen.textAlign = "center";
    for (const [t, text] of across) pen.fillText(text, Math.min(this.atX(t), width - pen.measureText(text).width / 2), p.top + p.height + 14);
    pen.textAlign = "right";
    for (const [t, text] of up) pen.fillText(text, p.left - 5, this.atY(t) + 4);
    pen.textAlign = "center";
    pen.fillStyle = ink("ink");
    pen.fillText(below, p.left + p.width / 2, height - 4);
    pen.save();
    pen.translate(11, p.top + p.height / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(beside, 0, 0);
    pen.restore();
    pen.textAlign = "left";
    pen.save();
    pen.beginPath();
    pen.rect(p.left, p.top, p.width, p.height);
    pen.clip();
    return { pen, p };
  }

  /* Thin lines through a place, where the pointer is. */
  cross(pen, p, x, y) {
    pen.fillStyle = ink("quiet");
    pen.fillRect(Math.round(this.atX(x)), p.top, 0.7, p.height);
    if (y !== null) pen.fillRect(p.left, Math.round(this.atY(y)), p.width, 0.7);
  }

  dot(pen, x, y) {
    pen.beginPath();
    pen.arc(x, y, 6.5, 0, 7);
    pen.fillStyle = ink("mark");
    pen.fill();
    pen.lineWidth = 2;
    pen.strokeStyle = "#fff";
    pen.stroke();
  }
}
