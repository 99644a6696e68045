/* Canvases: a figure with axes, zoom and a point that can be dragged; bars; maps. Colours come from the page. */
"use strict";

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const SIGNED = ["#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b"];
const parsed = (list) => list.map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
const SCALES = { values: parsed(VIRIDIS), signed: parsed(SIGNED) };

function shade(scale, t) {
  const stops = SCALES[scale], at = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2), f = at - i;
  return stops[i].map((low, k) => Math.round(low + f * (stops[i + 1][k] - low)));
}

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const short = (value) => (value === 0 ? "0" : Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5 ? value.toExponential(2) : Number(value.toPrecision(4)).toString());

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
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height };
}

/* About five round numbers between low and high. */
function ticks(low, high) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const step = 10 ** Math.floor(Math.log10(span / 4));
  const size = [1, 2, 5, 10].map((k) => k * step).find((s) => span / s <= 6);
  const found = [];
  for (let t = Math.ceil(low / size) * size; t <= high + size * 1e-9; t += size) found.push(Math.abs(t) < size * 1e-9 ? 0 : t);
  return found;
}

/* Bars over 0, 1, ...; values may be signed. */
function bars(canvas, values, { color = "accent", title = "", mark = -1 } = {}) {
  const { pen, width, height } = prepared(canvas);
  const low = Math.min(0, ...values), high = Math.max(0, ...values), span = high - low || 1;
  const top = 16, bottom = 4, room = height - top - bottom, step = width / values.length;
  const y = (value) => top + (1 - (value - low) / span) * room;
  values.forEach((value, m) => {
    pen.fillStyle = value < 0 ? ink("negative") : ink(m === mark ? "mark" : color);
    pen.fillRect(m * step + step * 0.08, Math.min(y(value), y(0)), Math.max(step * 0.84, 0.6), Math.abs(y(value) - y(0)));
  });
  pen.fillStyle = ink("rule");
  pen.fillRect(0, y(0), width, 1);
  pen.fillStyle = ink("quiet");
  pen.fillText(title, 2, 11);
  pen.textAlign = "right";
  pen.fillText(`${short(low)} .. ${short(high)}`, width - 2, 11);
  pen.textAlign = "left";
}

/* A map of rows x columns; signed values get a scale symmetric about zero. */
function heatmap(canvas, values, rows, columns, { scale = "values", title = "", range = null } = {}) {
  const { pen, width, height } = prepared(canvas);
  const most = values.reduce((m, v) => Math.max(m, Math.abs(v)), 0) || 1, top = 16;
  const [least, high] = range || (scale === "signed" ? [-most, most] : [0, most]);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      pen.fillStyle = `rgb(${shade(scale, (values[i * columns + j] - least) / (high - least || 1))})`;
      pen.fillRect((j * width) / columns, top + (i * (height - top)) / rows, width / columns + 0.5, (height - top) / rows + 0.5);
    }
  pen.fillStyle = ink("quiet");
  pen.fillText(title, 2, 11);
  pen.textAlign = "right";
  pen.fillText(`${short(least)} .. ${short(high)}`, width - 2, 11);
  pen.textAlign = "left";
}

/* A frame with axes. View: {x: [low, high], y: [low, high]}; wheel zooms, double click and 0 give the whole back. */
class Frame {
  constructor(canvas, whole, { onPoint, onHover, onView }) {
    Object.assign(this, { canvas, whole, onPoint, onHover, onView });
    this.view = structuredClone(whole);
    this.margin = { left: 58, right: 12, top: 8, bottom: 30 };
    this.locked = { x: false, y: false };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); this.drag = true; this.moved(event); });
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    canvas.addEventListener("pointerup", () => { this.drag = false; });
    canvas.addEventListener("pointerleave", () => this.onHover(null));
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("wheel", (event) => this.zoom(event), { passive: false });
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

  moved(event) {
    const box = this.canvas.getBoundingClientRect(), x = this.toX(event.clientX - box.left), y = this.toY(event.clientY - box.top);
    if (this.drag) this.onPoint(x, y);
    this.onHover([x, y]);
  }

  zoom(event) {
    event.preventDefault();
    const box = this.canvas.getBoundingClientRect(), factor = event.deltaY > 0 ? 1.25 : 0.8;
    const around = { x: this.toX(event.clientX - box.left), y: this.toY(event.clientY - box.top) };
    for (const axis of ["x", "y"]) {
      if (this.locked[axis]) continue;
      const [a, b] = this.view[axis], c = around[axis], [low, high] = this.whole[axis];
      const next = [Math.max(low, c + (a - c) * factor), Math.min(high, c + (b - c) * factor)];
      if (next[1] - next[0] > 1e-9 * (high - low)) this.view[axis] = next;
    }
    this.onView();
  }

  begin(labels) {
    const { pen, width, height } = prepared(this.canvas), p = this.inner();
    pen.strokeStyle = ink("rule");
    pen.fillStyle = ink("quiet");
    pen.lineWidth = 1;
    pen.strokeRect(p.left, p.top, p.width, p.height);
    pen.textAlign = "center";
    for (const t of ticks(...this.view.x)) pen.fillText(short(t), this.atX(t), p.top + p.height + 13);
    pen.fillText(labels[0], p.left + p.width / 2, height - 3);
    pen.textAlign = "right";
    for (const t of ticks(...this.view.y)) pen.fillText(short(t), p.left - 4, this.atY(t) + 4);
    pen.textAlign = "left";
    pen.fillText(labels[1], 2, p.top + 10);
    pen.save();
    pen.beginPath();
    pen.rect(p.left, p.top, p.width, p.height);
    pen.clip();
    return { pen, p, width, height };
  }

  dot(pen, x, y) {
    pen.beginPath();
    pen.arc(x, y, 6, 0, 7);
    pen.fillStyle = ink("mark");
    pen.fill();
    pen.lineWidth = 2;
    pen.strokeStyle = ink("paper");
    pen.stroke();
  }
}
