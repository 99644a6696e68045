/* The live view: drag x, and every head's attention, the weighted values, the hidden units and T(x) follow. */
"use strict";

const MOST = { heads: 12, sliders: 32, bars: 400, map: 4096 };
const FINE = 88, COARSE = 22, SLICE_MS = 12;

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

/* At most MOST.bars numbers: of each bucket the one of largest size. */
function bucketed(values) {
  if (values.length <= MOST.bars) return [...values];
  const size = Math.ceil(values.length / MOST.bars), found = [];
  for (let i = 0; i < values.length; i += size)
    found.push(values.subarray(i, i + size).reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0));
  return found;
}

class LiveView {
  constructor(root, data) {
    Object.assign(this, { root, data, layer: new Layer(data), f: compiledFormula(data.formula) || orderStatistics(data.order), output: 0 });
    this.low = data.box.lower;
    this.high = data.box.upper;
    this.x = data.start.slice();
    this.free = this.x.map((_, i) => i).filter((i) => this.high[i] > this.low[i]);
    this.axes = this.free.slice(0, 2);
    this.flat = this.free.length === 1;
    this.quantity = "T";
    this.leaves = data.boxes ? { lower: decoded(data.boxes.lower), upper: decoded(data.boxes.upper) } : null;
    this.build();
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    this.changed(true);
  }

  build() {
    const names = this.data.names, pick = (label, id, options, chosen, change) => made("label", { text: `${label} ` },
      made("select", { id, onchange: change }, ...options.map(([value, text]) => {
        const option = made("option", { value, text });
        option.selected = value === chosen;
        return option;
      })));
    const shown = this.f ? [["T", "T"], ["f", "f"], ["error", "T − f"]] : [["T", "T"]];
    const controls = made("div", { class: "live-controls" });
    const choose = made("span", { class: "live-choice", role: "radiogroup", "aria-label": "what the figure shows" });
    for (const [value, text] of shown) {
      const input = made("input", { type: "radio", name: "live-quantity", value, onchange: () => { this.quantity = value; this.changed(true); } });
      input.checked = value === this.quantity;
      choose.append(made("label", {}, input, ` ${text}`));
    }
    controls.append(choose);
    if (this.free.length > 2) {
      const options = this.free.map((i) => [String(i), names[i]]);
      [0, 1].forEach((side) => controls.append(pick(side ? "against" : "slice", `live-axis-${side}`, options, String(this.axes[side]), (event) => {
        this.axes[side] = Number(event.target.value);
        if (this.axes[0] === this.axes[1]) this.axes[1 - side] = this.free.find((i) => i !== this.axes[side]);
        [0, 1].forEach((s) => { document.getElementById(`live-axis-${s}`).value = String(this.axes[s]); });
        this.frameUp();
        this.changed(true);
      })));
    }
    if (this.layer.outputs > 1) {
      const options = Array.from({ length: this.layer.outputs }, (_, k) => [String(k), `y${k + 1}`]);
      controls.append(pick("output", "live-output", options, "0", (event) => { this.output = Number(event.target.value); this.changed(true); }));
    }
    controls.append(made("button", { type: "button", text: "whole", title: "zoom out", onclick: () => this.frame.reset() }));
    this.canvas = made("canvas", { class: "live-figure", tabindex: "0", role: "application",
      "aria-label": "figure; arrow keys move the point, + and - zoom, 0 shows the whole", onkeydown: (event) => this.key(event) });
    this.hover = made("p", { class: "live-hover", text: "\u00a0" });
    this.sliders = this.free.slice(0, MOST.sliders).map((i) => this.slider(i, names[i]));
    this.value = made("output", { id: "live-value" });
    this.reference = made("span", { id: "live-reference" });
    this.parts = made("div", { class: "live-parts" });
    this.heads = made("div", { class: "live-heads" });
    this.hidden = made("div", { class: "live-hidden" });
    this.root.replaceChildren(made("div", { class: "live" },
      made("div", { class: "live-left" }, controls, this.canvas, this.hover, made("div", { class: "live-sliders" }, ...this.sliders.map((s) => s.row))),
      made("div", { class: "live-right" },
        made("p", { class: "live-result", "aria-live": "polite" }, "T(x) = ", this.value, this.reference), this.parts, this.heads, this.hidden)));
    this.frameUp();
    this.buildHeads();
  }

  slider(i, name) {
    const set = (event) => {
      const value = Number(event.target.value);
      if (event.target.value !== "" && Number.isFinite(value)) { this.x[i] = Math.min(Math.max(value, this.low[i]), this.high[i]); this.changed(!this.axes.includes(i)); }
    };
    const range = made("input", { type: "range", id: `live-x${i}`, min: this.low[i], max: this.high[i], step: "any", "aria-label": name, oninput: set });
    const number = made("input", { type: "number", min: this.low[i], max: this.high[i], step: "any", "aria-label": `${name}, typed`, onchange: set });
    return { i, range, number, row: made("div", { class: "live-slider" }, made("label", { for: `live-x${i}`, text: name }), range, number) };
  }

  frameUp() {
    const side = (i) => [this.low[i], this.high[i]];
    const whole = this.flat ? { x: side(this.free[0]), y: [0, 1] } : { x: side(this.axes[0]), y: side(this.axes[1]) };
    const handlers = { onPoint: (x, y) => this.point(x, y), onHover: (at) => this.hovered(at), onView: () => this.changed(true) };
    if (!this.frame) this.frame = new Frame(this.canvas, whole, handlers);
    Object.assign(this.frame, { whole, view: structuredClone(whole), locked: { x: false, y: this.flat } });
  }

  point(x, y) {
    const [a, b] = this.flat ? [this.free[0]] : this.axes;
    const put = (i, value) => { this.x[i] = Math.min(Math.max(value, this.low[i]), this.high[i]); };
    put(a, x);
    if (!this.flat) put(b, y);
    this.changed(false);
  }

  key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    const view = this.frame.view, [a, b] = this.flat ? [this.free[0]] : this.axes;
    if (step) {
      event.preventDefault();
      const size = event.shiftKey ? 0.1 : 0.01;
      if (this.flat) this.point(this.x[a] + (step[0] || step[1]) * size * (view.x[1] - view.x[0]), 0);
      else this.point(this.x[a] + step[0] * size * (view.x[1] - view.x[0]), this.x[b] + step[1] * size * (view.y[1] - view.y[0]));
    } else if (event.key === "0") this.frame.reset();
    else if (event.key === "+" || event.key === "-") {
      const box = this.canvas.getBoundingClientRect();
      this.frame.zoom({ preventDefault() {}, deltaY: event.key === "-" ? 1 : -1,
        clientX: box.left + this.frame.atX(this.x[a]), clientY: box.top + (this.flat ? 0 : this.frame.atY(this.x[b])) });
    }
  }

  hovered(at) {
    if (!at) { this.hover.textContent = "\u00a0"; return; }
    const point = this.x.slice(), name = this.data.names, [a, b] = this.flat ? [this.free[0]] : this.axes;
    point[a] = Math.min(Math.max(at[0], this.low[a]), this.high[a]);
    if (!this.flat) point[b] = Math.min(Math.max(at[1], this.low[b]), this.high[b]);
    const t = this.layer.run(point).y[this.output], f = this.f ? this.f(point)[this.output] : null;
    const where = (this.flat ? [a] : [a, b]).map((i) => `${name[i]} = ${short(point[i])}`).join(", ");
    this.hover.textContent = `${where}: T = ${short(t)}${f === null ? "" : `, f = ${short(f)}, T − f = ${short(t - f)}`}`;
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

  at(point) {
    if (this.quantity === "f") return this.f(point)[this.output];
    const t = this.layer.run(point).y[this.output];
    return this.quantity === "T" ? t : t - this.f(point)[this.output];
  }

  background() {
    this.turn = (this.turn || 0) + 1;
    if (this.flat) this.curve();
    else this.plane(COARSE, () => this.plane(FINE, () => {}));
  }

  curve() {
    const [a, b] = this.frame.view.x, i = this.free[0], count = 400, point = this.x.slice();
    this.line = { x: [], t: [], f: [] };
    for (let k = 0; k <= count; k++) {
      point[i] = Math.min(Math.max(a + (k / count) * (b - a), this.low[i]), this.high[i]);
      this.line.x.push(point[i]);
      this.line.t.push(this.layer.run(point).y[this.output]);
      if (this.f) this.line.f.push(this.f(point)[this.output]);
    }
    let shown = this.quantity === "error" ? this.line.t.map((t, k) => t - this.line.f[k]) : [...this.line.t, ...this.line.f];
    if (this.quantity === "error" && this.data.upper !== null) {
      const most = Math.max(...shown.map(Math.abs));
      if (this.data.upper < 8 * most) shown = [...shown, this.data.upper, -this.data.upper];
    }
    const low = Math.min(...shown), high = Math.max(...shown), room = (high - low) * 0.06 || 1;
    this.frame.view.y = this.frame.whole.y = [low - room, high + room];
  }

  /* Values on a size x size grid of the plane, a few milliseconds at a time; then what comes after. */
  plane(size, after) {
    const turn = this.turn, values = new Float64Array(size * size), { x: vx, y: vy } = this.frame.view, point = this.x.slice();
    const [a, b] = this.axes;
    let k = 0;
    const work = () => {
      if (turn !== this.turn) return;
      const until = performance.now() + SLICE_MS;
      while (k < values.length && performance.now() < until) {
        const i = k % size, j = Math.floor(k / size);
        point[a] = vx[0] + ((i + 0.5) / size) * (vx[1] - vx[0]);
        point[b] = vy[1] - ((j + 0.5) / size) * (vy[1] - vy[0]);
        values[k++] = this.at(point);
      }
      if (k < values.length) { setTimeout(work); return; }
      this.paint(values, size, vx, vy);
      this.redraw();
      after();
    };
    work();
  }

  paint(values, size, vx, vy) {
    const picture = made("canvas", { width: size, height: size }), pen = picture.getContext("2d"), image = pen.createImageData(size, size);
    const signed = this.quantity === "error", most = values.reduce((m, v) => Math.max(m, Math.abs(v)), 0) || 1;
    const low = signed ? -most : values.reduce((m, v) => Math.min(m, v), Infinity);
    const high = signed ? most : values.reduce((m, v) => Math.max(m, v), -Infinity);
    values.forEach((value, k) => {
      const [r, g, b] = shade(signed ? "signed" : "values", (value - low) / (high - low || 1));
      image.data.set([r, g, b, 255], 4 * k);
    });
    pen.putImageData(image, 0, 0);
    this.map = { picture, vx: vx.slice(), vy: vy.slice(), low, high };
  }

  redraw() {
    const found = this.layer.run(this.x), name = this.data.names;
    const { pen, p } = this.frame.begin(this.flat ? [name[this.free[0]], ""] : this.axes.map((i) => name[i]));
    if (this.flat) this.drawCurve(pen, p, found);
    else this.drawPlane(pen, p);
    pen.restore();
    this.showValue(found);
    this.drawHeads(found);
    for (const { i, range, number } of this.sliders) {
      range.value = this.x[i];
      if (document.activeElement !== number) number.value = Number(this.x[i].toPrecision(8));
    }
    this.root.dataset.ready = "yes";
  }

  drawCurve(pen, p, found) {
    if (!this.line) return;
    const frame = this.frame, i = this.free[0], stroke = (ys, color, width) => {
      pen.beginPath();
      ys.forEach((y, k) => pen.lineTo(frame.atX(this.line.x[k]), frame.atY(y)));
      Object.assign(pen, { strokeStyle: ink(color), lineWidth: width });
      pen.stroke();
    };
    const level = (y, color) => { pen.fillStyle = ink(color); pen.fillRect(p.left, frame.atY(y), p.width, 1); };
    let y = found.y[this.output];
    if (this.quantity === "error") {
      level(0, "rule");
      if (this.data.upper !== null) { level(this.data.upper, "mark"); level(-this.data.upper, "mark"); }
      stroke(this.line.t.map((t, k) => t - this.line.f[k]), "accent", 1.6);
      y -= this.f(this.x)[this.output];
    } else {
      if (this.f) stroke(this.line.f, "second", 4);
      stroke(this.line.t, "accent", 1.6);
      if (this.quantity === "f") y = this.f(this.x)[this.output];
    }
    if (this.leaves) {
      pen.fillStyle = ink("quiet");
      for (const edge of this.leaves.lower) pen.fillRect(frame.atX(edge), p.top + p.height - 7, 1, 7);
    }
    frame.dot(pen, frame.atX(this.x[i]), frame.atY(y));
  }

  drawPlane(pen, p) {
    const frame = this.frame, [a, b] = this.axes, map = this.map;
    if (map) {
      pen.imageSmoothingEnabled = false;
      const left = frame.atX(map.vx[0]), top = frame.atY(map.vy[1]);
      pen.drawImage(map.picture, left, top, frame.atX(map.vx[1]) - left, frame.atY(map.vy[0]) - top);
    }
    if (this.leaves) {
      const { lower, upper } = this.leaves, dim = this.x.length;
      const strength = Math.max(0.1, Math.min(0.45, (150 * dim) / lower.length));
      Object.assign(pen, { strokeStyle: `rgba(0,0,0,${strength})`, lineWidth: 0.7 });
      for (let k = 0; k < lower.length; k += dim) {
        if (!this.x.every((v, i) => i === a || i === b || (lower[k + i] <= v && v <= upper[k + i]))) continue;
        const x0 = frame.atX(lower[k + a]), y0 = frame.atY(upper[k + b]);
        pen.strokeRect(x0, y0, frame.atX(upper[k + a]) - x0, frame.atY(lower[k + b]) - y0);
      }
    }
    if (map) {
      const text = `${{ T: "T", f: "f", error: "T − f" }[this.quantity]} from ${short(map.low)} to ${short(map.high)}`;
      pen.fillStyle = "rgba(255,255,255,.8)";
      pen.fillRect(p.left + 4, p.top + 4, pen.measureText(text).width + 8, 17);
      pen.fillStyle = "#222";
      pen.fillText(text, p.left + 8, p.top + 16);
    }
    frame.dot(pen, frame.atX(this.x[a]), frame.atY(this.x[b]));
  }

  showValue(found) {
    const value = found.y[this.output];
    this.value.textContent = String(value);
    this.value.dataset.all = JSON.stringify([...found.y]);
    this.value.dataset.x = JSON.stringify(this.x);
    const f = this.f ? this.f(this.x)[this.output] : null;
    this.reference.textContent = f === null ? "" : `, f(x) = ${short(f)}, T − f = ${short(value - f)}`;
  }

  buildHeads() {
    const shown = this.layer.heads.slice(0, MOST.heads), more = this.layer.heads.length - shown.length;
    this.panels = shown.map((head) => this.panel(head));
    this.heads.replaceChildren(...this.panels.map((panel) => panel.row), ...(more > 0 ? [made("p", { text: `and ${more} more heads` })] : []));
    if (!this.layer.config.hidden) return;
    this.hiddenTitle = made("h3", { text: `${this.layer.config.hidden.toLocaleString("en")} hidden units` });
    this.hiddenCanvas = made("canvas", { class: "live-bars", role: "img", "aria-label": "hidden units" });
    this.hidden.replaceChildren(this.hiddenTitle, this.hiddenCanvas);
  }

  panel(head) {
    const title = made("h3"), canvases = [], add = (kind, label) => {
      const canvas = made("canvas", { class: kind, role: "img", "aria-label": `head ${head.h}: ${label}` });
      canvases.push(canvas);
      return canvas;
    };
    const grid = head.memory === "grid" && this.layer.additive;
    if (!this.layer.additive) add("live-map", "attention of every token");
    else if (!grid || head.counts.length === 1) { add("live-bars", "attention weights"); add("live-bars", "weighted values"); }
    else {
      head.counts.forEach((_, a) => add("live-bars", `attention along axis ${a + 1}`));
      if (head.counts.length === 2 && head.size <= MOST.map) add("live-map", "weighted values");
    }
    return { head, title, canvases, row: made("section", { class: "live-head" }, title, made("div", { class: "live-row" }, ...canvases)) };
  }

  drawHeads(found) {
    const sums = [];
    for (const { head, title, canvases } of this.panels) {
      const purpose = this.data.purposes[head.h] || "";
      if (!this.layer.additive) {
        const rows = found.heads.map((heads) => heads[head.h].weights);
        title.textContent = `head ${head.h} · ${purpose}`;
        heatmap(canvases[0], rows.flatMap((row) => bucketed(row)), rows.length, bucketed(rows[0]).length, { title: "attention: queries down, tokens across", range: [0, 1] });
        continue;
      }
      const own = found.heads[0][head.h], part = head.out.reduce((sum, row, j) => sum + own.z[j] * row[this.output], 0);
      sums.push([`head ${head.h}`, part]);
      title.textContent = `head ${head.h} · ${purpose} · adds ${short(part)}`;
      this.drawHead(head, own, canvases);
    }
    if (this.hiddenCanvas) this.drawHidden(found, sums);
    if (this.layer.additive) this.showSum(found, sums);
  }

  drawHead(head, own, canvases) {
    const values = this.layer.t[`memory.${head.h}.values`];
    const worth = (m) => head.out.reduce((sum, row, j) => sum + values[m * head.d_v + j] * row[this.output], 0);
    if (!own.axes || own.axes.length === 1) {
      const weights = own.axes ? own.axes[0] : own.weights, best = weights.indexOf(Math.max(...weights));
      bars(canvases[0], bucketed(weights), { title: "attention α", mark: weights.length <= MOST.bars ? best : -1 });
      bars(canvases[1], bucketed(weights.map((w, m) => w * worth(m))), { title: "weighted values α v", color: "second" });
      return;
    }
    own.axes.forEach((axis, a) => bars(canvases[a], bucketed(axis), { title: `α, axis ${a + 1}`, mark: axis.indexOf(Math.max(...axis)) }));
    if (canvases.length > own.axes.length) {
      const all = this.layer.allWeights(own);
      heatmap(canvases.at(-1), Array.from(all, (w, m) => w * worth(m)), head.counts[0], head.counts[1], { scale: "signed", title: "α v over the grid" });
    }
  }

  drawHidden(found, sums) {
    const units = found.hidden[0];
    if (!this.layer.additive) { bars(this.hiddenCanvas, bucketed(units), { title: "activation, first token" }); return; }
    const adds = units.map((value, j) => value * this.layer.unitOut[j][this.output]);
    sums.push(["hidden units", adds.reduce((a, b) => a + b, 0)]);
    const active = units.reduce((count, value) => count + (value > 0), 0);
    this.hiddenTitle.textContent = `${units.length.toLocaleString("en")} hidden units · ${active} active`;
    bars(this.hiddenCanvas, bucketed(adds), { title: "what each adds", color: "second" });
  }

  showSum(found, sums) {
    const total = sums.reduce((sum, [, value]) => sum + value, 0);
    const rows = [...sums.slice(0, MOST.heads + 1), ["affine part and the rest", found.y[this.output] - sums.slice(0, MOST.heads + 1).reduce((s, [, v]) => s + v, 0)]];
    this.parts.replaceChildren(...rows.map(([name, value]) => made("span", { text: `${name} ${value < 0 ? "−" : "+"}${short(Math.abs(value))}` })));
    this.parts.dataset.sum = String(total);
  }
}

function mountLive(root, data) {
  return new LiveView(root, data);
}
