/* The live view: drag x, and every head's attention, the weighted values, the hidden units and T(x) follow. */
"use strict";

const MOST = { heads: 32, sliders: 32, bars: 400, map: 4096, rows: 12 };
const FINE = 110, COARSE = 22, SLICE_MS = 12, LINE = 400, CLOSE = 24;
const QUANTITIES = { T: "T", f: "f", error: "T − f" };
let mounted = 0;

function made(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

class LiveView {
  constructor(root, data) {
    Object.assign(this, { root, data, layer: new Layer(data), f: compiledFormula(data.formula) || orderStatistics(data.order), output: data.output });
    this.id = `live${mounted++}`;
    this.low = data.box.lower;
    this.high = data.box.upper;
    this.x = data.start.slice();
    this.free = this.x.map((_, i) => i).filter((i) => this.high[i] > this.low[i]);
    this.axes = this.free.slice(0, 2);
    this.flat = this.free.length === 1;
    this.quantity = "T";
    this.showBoxes = true;
    this.leaves = data.boxes ? { lower: decoded(data.boxes.lower), upper: decoded(data.boxes.upper) } : null;
    this.rows = data.rows ? { x: decoded(data.rows.x), y: decoded(data.rows.y) } : null;
    this.build();
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    NIGHT.addEventListener("change", () => this.changed(true));
    this.changed(true);
  }

  build() {
    const figure = (kind, label) => made("canvas", { class: kind, tabindex: "0", role: "application", "aria-label": `${label}; arrow keys move the point, + and - zoom, 0 shows the whole`, onkeydown: (event) => this.key(event) });
    this.canvas = figure("live-figure", "figure");
    this.below = this.flat && this.f ? figure("live-figure live-below", "T minus f") : "";
    this.hover = made("p", { class: "live-hover" });
    this.sliders = this.free.slice(0, MOST.sliders).map((i) => this.slider(i, this.data.names[i]));
    this.value = made("output", { class: "live-value" });
    this.reference = made("output", { class: "live-reference" });
    this.error = made("output", { class: "live-error" });
    this.share = made("small");
    this.readout = made("div", { class: "live-readout" }, made("div", {}, made("span", { text: "T(x)" }), this.value));
    if (this.data.rounded) this.readout.append(made("small", { text: this.data.rounded }));
    if (this.f) this.readout.append(made("div", {}, made("span", { text: "f(x)" }), this.reference), made("div", {}, made("span", { text: "T − f" }), this.error, this.share));
    this.panels = new Panels(this);
    this.root.replaceChildren(made("div", { class: "live" },
      made("div", { class: "live-left" }, this.controls(), this.canvas, this.below, this.hover, made("div", { class: "live-sliders" }, ...this.sliders.map((s) => s.row))),
      made("div", { class: "live-right" }, this.readout, this.panels.root)));
    this.frameUp();
    this.hovered(null);
  }

  controls() {
    const bar = made("div", { class: "live-controls" }), names = this.data.names;
    if (this.flat) bar.append(made("span", { class: "live-legend" }, made("i", { class: "is-t" }), "T ", ...(this.f ? [made("i", { class: "is-f" }), "f"] : [])));
    else bar.append(this.choice());
    if (this.free.length > 2) {
      const options = this.free.map((i) => [String(i), names[i]]);
      this.pickers = [0, 1].map((side) => this.pick(side ? "against" : "slice", options, String(this.axes[side]), (value) => this.slice(side, Number(value))));
      bar.append(...this.pickers);
    }
    if (this.layer.outputs > 1) {
      const options = Array.from({ length: this.layer.outputs }, (_, k) => [String(k), `y${k + 1}`]);
      bar.append(this.pick("output", options, String(this.output), (value) => { this.output = Number(value); this.changed(true); }));
    }
    if (this.leaves) {
      const boxes = made("input", { type: "checkbox", onchange: (event) => { this.showBoxes = event.target.checked; this.changed(false); } });
      const count = this.leaves.lower.length / this.x.length;
      boxes.checked = true;
      bar.append(made("label", { class: "live-boxes" }, boxes, ` ${count.toLocaleString("en")} ${count === 1 ? "box" : "boxes"}`));
    }
    this.whole = made("button", { type: "button", text: "whole", title: "zoom out", onclick: () => this.frames.forEach((frame) => frame.reset()) });
    bar.append(this.whole);
    return bar;
  }

  /* Small maps of T, f and T − f: the chosen one is the large one. */
  choice() {
    const shown = this.f ? Object.keys(QUANTITIES) : ["T"], group = made("span", { class: "live-choice", role: "radiogroup", "aria-label": "what the figure shows" });
    this.thumbs = {};
    for (const value of shown) {
      const input = made("input", { type: "radio", name: `${this.id}-quantity`, value, onchange: () => { this.quantity = value; this.changed(false); } });
      input.checked = value === this.quantity;
      this.thumbs[value] = made("canvas", { "aria-hidden": "true" });
      group.append(made("label", {}, input, this.thumbs[value], made("span", { text: QUANTITIES[value] })));
    }
    return group;
  }

  pick(label, options, chosen, change) {
    const select = made("select", { onchange: (event) => change(event.target.value) }, ...options.map(([value, text]) => made("option", { value, text })));
    select.value = chosen;
    return made("label", { text: `${label} ` }, select);
  }

  slice(side, value) {
    this.axes[side] = value;
    if (this.axes[0] === this.axes[1]) this.axes[1 - side] = this.free.find((i) => i !== value);
    this.pickers.forEach((label, s) => { label.querySelector("select").value = String(this.axes[s]); });
    this.frameUp();
    this.changed(true);
  }

  slider(i, name) {
    const set = (event) => {
      const value = Number(event.target.value);
      if (event.target.value !== "" && Number.isFinite(value)) { this.put(i, value); this.changed(!this.shownAxes.includes(i)); }
    };
    const id = `${this.id}-x${i}`, ends = { min: this.low[i], max: this.high[i], step: "any" };
    const range = made("input", { type: "range", id, ...ends, "aria-label": name, oninput: set });
    const number = made("input", { type: "number", ...ends, "aria-label": `${name}, typed`, onchange: set });
    return { i, range, number, row: made("div", { class: "live-slider" }, made("label", { for: id, text: name, title: `${name} from ${short(this.low[i])} to ${short(this.high[i])}` }), range, number) };
  }

  get shownAxes() { return this.flat ? [this.free[0]] : this.axes; }

  put(i, value) { this.x[i] = Math.min(Math.max(value, this.low[i]), this.high[i]); }

  frameUp() {
    const side = (i) => [this.low[i], this.high[i]];
    const whole = this.flat ? { x: side(this.free[0]), y: [0, 1] } : { x: side(this.axes[0]), y: side(this.axes[1]) };
    this.frames ??= [this.canvas, this.below].filter(Boolean).map((canvas) => new Frame(canvas, whole, {
      onPoint: (x, y) => this.point(x, y), onHover: (at) => this.hovered(at), onView() {},
    }));
    for (const frame of this.frames) {
      Object.assign(frame, { whole: structuredClone(whole), view: structuredClone(whole), locked: { x: false, y: this.flat } });
      frame.beside = () => this.frames;
      frame.margin.right = this.flat ? 12 : 70;
      frame.onView = () => { this.frames.forEach((other) => { other.view.x = frame.view.x.slice(); }); this.changed(true); };
    }
    [this.frame] = this.frames;
  }

  point(x, y) {
    const [a, b] = this.shownAxes;
    this.put(a, x);
    if (!this.flat) this.put(b, y);
    this.changed(false);
  }

  key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    const view = this.frame.view, [a, b] = this.shownAxes, at = [this.x[a], this.flat ? 0 : this.x[b]];
    if (step) {
      event.preventDefault();
      const size = event.shiftKey ? 0.1 : 0.01;
      if (this.flat) this.point(at[0] + (step[0] || step[1]) * size * (view.x[1] - view.x[0]), 0);
      else this.point(at[0] + step[0] * size * (view.x[1] - view.x[0]), at[1] + step[1] * size * (view.y[1] - view.y[0]));
    } else if (event.key === "0") this.frame.reset();
    else if (event.key === "+" || event.key === "-") this.frame.zoom(at, event.key === "-" ? 1.25 : 0.8);
  }

  hovered(at) {
    this.pointer = at;
    const hint = "drag the point · click, then turn the wheel to zoom · shift and drag to move the view";
    this.hover.textContent = at ? this.told(at) : hint;
    this.hover.classList.toggle("is-hint", !at);
    this.changed(false);
  }

  /* What lies under the pointer. */
  told(at) {
    const point = this.x.slice();
    this.shownAxes.forEach((i, k) => { point[i] = Math.min(Math.max(at[k], this.low[i]), this.high[i]); });
    const t = this.layer.run(point).y[this.output], f = this.f ? this.f(point)[this.output] : null;
    const where = this.shownAxes.map((i) => `${this.data.names[i]} = ${short(point[i])}`).join(", ");
    return `at ${where}: T = ${short(t)}${f === null ? "" : `, f = ${short(f)}, T − f = ${short(t - f, 3)}`}`;
  }

  /* The point moved, or with ``all`` what lies behind it; drawn once per frame. */
  changed(all) {
    this.stale = this.stale || all;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.stale) this.background();
      this.stale = false;
      this.redraw();
    });
  }

  background() {
    this.turn = (this.turn || 0) + 1;
    if (this.flat) this.curve();
    else this.plane(COARSE, () => this.plane(FINE, () => {}));
  }

  curve() {
    const [a, b] = this.frame.view.x, i = this.free[0], point = this.x.slice(), line = { x: [], t: [], f: [], error: [] };
    for (let k = 0; k <= LINE; k++) {
      point[i] = Math.min(Math.max(a + (k / LINE) * (b - a), this.low[i]), this.high[i]);
      line.x.push(point[i]);
      line.t.push(this.layer.run(point).y[this.output]);
      if (this.f) { line.f.push(this.f(point)[this.output]); line.error.push(line.t[k] - line.f[k]); }
    }
    const fit = (frame, values) => {
      const low = Math.min(...values), high = Math.max(...values), room = (high - low) * 0.07 || 1;
      frame.view.y = frame.whole.y = [low - room, high + room];
    };
    fit(this.frame, [...line.t, ...line.f, ...(this.rows ? this.rows.y : [])]);
    if (this.f) {
      const most = Math.max(...line.error.map(Math.abs)), bound = this.data.upper !== null && this.data.upper < 8 * most ? this.data.upper : most;
      fit(this.frames[1], [...line.error, bound, -bound]);
    }
    this.line = line;
  }

  /* T and f on a size x size grid of the plane, a few milliseconds at a time; then what comes after. */
  plane(size, after) {
    const turn = this.turn, t = new Float64Array(size * size), f = new Float64Array(size * size), { x: vx, y: vy } = this.frame.view, point = this.x.slice();
    const [a, b] = this.axes;
    let k = 0;
    const work = () => {
      if (turn !== this.turn) return;
      const until = performance.now() + SLICE_MS;
      while (k < t.length && performance.now() < until) {
        const i = k % size, j = Math.floor(k / size);
        point[a] = vx[0] + ((i + 0.5) / size) * (vx[1] - vx[0]);
        point[b] = vy[1] - ((j + 0.5) / size) * (vy[1] - vy[0]);
        t[k] = this.layer.run(point).y[this.output];
        if (this.f) f[k] = this.f(point)[this.output];
        k++;
      }
      if (k < t.length) { setTimeout(work); return; }
      const view = { size, vx: vx.slice(), vy: vy.slice() };
      const range = extent(this.f ? [...t, ...f] : t); // one scale for T and f: equal colours are equal values
      this.maps = { T: painted(t, view, "values", range) };
      if (this.f) {
        const error = t.map((v, m) => v - f[m]), most = Math.max(...extent(error).map(Math.abs)) || 1;
        Object.assign(this.maps, { f: painted(f, view, "values", range), error: painted(error, view, "signed", [-most, most]) });
      }
      this.redraw();
      after();
    };
    work();
  }

  redraw() {
    const found = this.layer.run(this.x);
    if (this.flat) this.drawCurve(found);
    else this.drawPlane();
    this.whole.hidden = !this.frame.zoomed;
    this.showValue(found);
    this.panels.draw(found);
    for (const { i, range, number } of this.sliders) {
      range.value = this.x[i];
      if (document.activeElement !== number) number.value = Number(this.x[i].toPrecision(6));
    }
    this.root.dataset.ready = "yes";
  }

  drawCurve(found) {
    if (!this.line) return;
    const i = this.free[0], x = this.x[i], name = this.data.names[i], t = found.y[this.output];
    this.drawLines(this.frame, [this.f ? "" : name, ""], [["f", "second", 4.5], ["t", "accent", 1.8]], t);
    if (this.below) this.drawLines(this.frames[1], [name, "T − f"], [["error", "accent", 1.6]], t - this.f(this.x)[this.output], this.data.upper);
  }

  drawLines(frame, labels, lines, y, bound = null) {
    const { pen, p } = frame.begin(labels, true), i = this.free[0];
    const level = (value, color) => { pen.fillStyle = ink(color); pen.fillRect(p.left, frame.atY(value), p.width, 1.2); };
    if (bound !== null) [bound, -bound].forEach((value) => level(value, "mark"));
    if (this.leaves && this.showBoxes) {
      pen.fillStyle = ink("quiet");
      for (const edge of this.leaves.lower) pen.fillRect(frame.atX(edge), p.top + p.height - 7, 1, 7);
    }
    for (const [key, color, width] of lines) {
      pen.beginPath();
      this.line[key].forEach((value, k) => pen.lineTo(frame.atX(this.line.x[k]), frame.atY(value)));
      Object.assign(pen, { strokeStyle: ink(color), lineWidth: width, lineJoin: "round" });
      pen.stroke();
    }
    if (this.rows) this.drawRows(pen, frame, (k) => [this.rows.x[k], this.rows.y[k * this.layer.outputs + this.output]]);
    if (this.pointer) frame.cross(pen, p, this.pointer[0], null);
    frame.dot(pen, frame.atX(this.x[i]), frame.atY(y));
    pen.restore();
    if (bound !== null && bound <= frame.view.y[1]) labelled(pen, this.data.bound, p.left + 6, frame.atY(bound) + 13);
  }

  drawRows(pen, frame, place) {
    Object.assign(pen, { fillStyle: "#fff", strokeStyle: "#111", lineWidth: 1.3 });
    for (let k = 0; k < this.data.rows.x.shape[0]; k++) {
      const [x, y] = place(k);
      pen.beginPath();
      pen.arc(frame.atX(x), frame.atY(y), 3.4, 0, 7);
      pen.fill();
      pen.stroke();
    }
  }

  drawPlane() {
    const frame = this.frame, [a, b] = this.axes, map = this.maps && this.maps[this.quantity];
    const { pen, p } = frame.begin(this.axes.map((i) => this.data.names[i]));
    if (map) {
      const left = frame.atX(map.vx[0]), top = frame.atY(map.vy[1]);
      pen.drawImage(map.picture, left, top, frame.atX(map.vx[1]) - left, frame.atY(map.vy[0]) - top);
    }
    if (this.leaves && this.showBoxes) this.drawBoxes(pen);
    if (this.rows && this.x.length === 2) this.drawRows(pen, frame, (k) => [this.rows.x[2 * k + a], this.rows.x[2 * k + b]]);
    if (this.pointer) frame.cross(pen, p, ...this.pointer);
    frame.dot(pen, frame.atX(this.x[a]), frame.atY(this.x[b]));
    pen.restore();
    if (!map) return;
    colourbar(pen, map.scale, map.low, map.high, { left: p.left + p.width + 8, top: p.top, height: p.height });
    for (const [value, thumb] of Object.entries(this.thumbs)) {
      const { pen: small, width, height } = prepared(thumb);
      small.drawImage(this.maps[value].picture, 0, 0, width, height);
    }
  }

  drawBoxes(pen) {
    const { lower, upper } = this.leaves, dim = this.x.length, frame = this.frame, [a, b] = this.axes;
    const dark = this.quantity !== "error" || NIGHT.matches, strength = Math.max(0.16, Math.min(0.5, (150 * dim) / lower.length));
    Object.assign(pen, { strokeStyle: dark ? `rgba(255,255,255,${strength})` : `rgba(0,0,0,${strength})`, lineWidth: 0.8 });
    for (let k = 0; k < lower.length; k += dim) {
      if (!this.x.every((v, i) => i === a || i === b || (lower[k + i] <= v && v <= upper[k + i]))) continue;
      const x0 = frame.atX(lower[k + a]), y0 = frame.atY(upper[k + b]);
      const across = frame.atX(upper[k + a]) - x0, up = frame.atY(lower[k + b]) - y0;
      pen.globalAlpha = Math.min(1, Math.abs(across) / CLOSE, Math.abs(up) / CLOSE); // lines that stand close must not cover the map
      pen.strokeRect(x0, y0, across, up);
    }
    pen.globalAlpha = 1;
  }

  showValue(found) {
    const value = found.y[this.output];
    this.value.textContent = String(value);
    Object.assign(this.value.dataset, { all: JSON.stringify([...found.y]), x: JSON.stringify(this.x) });
    if (!this.f) return;
    const f = this.f(this.x)[this.output], bound = this.data.upper;
    this.reference.textContent = short(f, 6);
    this.reference.dataset.value = String(f);
    this.error.textContent = short(value - f, 3);
    // The bound is one of the layer in its own format: another arithmetic is not measured by it.
    this.share.textContent = bound > 0 && !this.data.rounded ? `${Math.ceil((100 * Math.abs(value - f)) / bound)} % of the ${this.data.bound} ${shortUp(bound)}` : "";
  }
}

const extent = (values) => values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);

/* A map as a picture, with the range of its colours. */
function painted(values, view, scale, [low, high]) {
  const { size } = view, picture = made("canvas", { width: size, height: size }), pen = picture.getContext("2d"), image = pen.createImageData(size, size);
  values.forEach((value, k) => image.data.set([...shade(scale, (value - low) / (high - low || 1)), 255], 4 * k));
  pen.putImageData(image, 0, 0);
  return { picture, low, high, scale, ...view };
}

function mountLive(root, data) {
  return new LiveView(root, data);
}
