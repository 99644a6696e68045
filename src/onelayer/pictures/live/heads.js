/* Panels beside the figure: what every head attends to at x, what it adds, the hidden units, and all outputs. */
"use strict";

const SAMPLES = 160; // of a curve of attention

/* At most MOST.bars numbers: of each bucket the one of largest size. */
function bucketed(values) {
  if (values.length <= MOST.bars) return [...values];
  const size = Math.ceil(values.length / MOST.bars), found = [];
  for (let i = 0; i < values.length; i += size)
    found.push(values.slice(i, i + size).reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0));
  return found;
}

/* A canvas under a caption; the right end of the caption tells the value under the pointer. */
class Panel {
  constructor(kind, title, label = title) {
    this.canvas = made("canvas", { class: kind, role: "img", "aria-label": label });
    this.note = made("span");
    this.root = made("figure", { class: "live-panel" }, made("figcaption", {}, made("span", { text: title }), this.note), this.canvas);
    this.canvas.addEventListener("pointermove", (event) => { this.at = [event.offsetX, event.offsetY]; this.tell(); });
    this.canvas.addEventListener("pointerleave", () => { this.at = null; this.tell(); });
  }

  /* ``usual`` is the note without a pointer; ``told(px, py)`` the one with it. */
  says(usual, told) {
    Object.assign(this, { usual, told });
    this.tell();
  }

  tell() { this.note.textContent = this.at ? this.told(...this.at) : this.usual; }
}

class Panels {
  constructor(view) {
    Object.assign(this, { view, layer: view.layer, data: view.data });
    this.many = this.layer.rows > 1;
    this.sum = made("div", { class: "live-sum" });
    const shown = this.layer.heads.slice(0, MOST.heads), more = this.layer.heads.length - shown.length;
    this.heads = shown.map((head) => (this.layer.additive ? this.head(head) : this.tile(head)));
    const place = made("div", { class: this.layer.additive ? "live-heads" : "live-tiles" }, ...this.heads.map((one) => one.row));
    this.root = made("div", {}, this.sum, place);
    if (more > 0) this.root.append(made("p", { class: "live-more", text: `and ${more} more heads` }));
    if (this.layer.config.hidden) this.addHidden();
    if (this.layer.outputs > 1) {
      this.outputs = new Panel("live-bars", view.f ? "all outputs of T, black: f" : "all outputs of T");
      this.root.append(made("section", { class: "live-head" }, this.outputs.root));
    }
  }

  addHidden() {
    const title = this.layer.additive ? "what every hidden unit adds" : this.many ? "every hidden unit, one row per token" : "every hidden unit";
    this.hidden = new Panel(this.many ? "live-map" : "live-bars", title, "hidden units");
    this.hiddenTitle = made("h3");
    this.root.append(made("section", { class: "live-head" }, this.hiddenTitle, this.hidden.root));
  }

  /* A head of a packed layer: curves of attention along every axis it looks along, or bars over its tokens. */
  head(head) {
    const known = this.data.heads[head.h], title = made("h3"), one = { head, known, title, curves: [] };
    one.row = made("section", { class: "live-head" }, title);
    if (head.size === 1) return one; // always weight 1: nothing to look at but what it adds
    const axes = known.axes || [], along = axes.filter((axis) => axis.slope.length <= MOST.bars), listed = axes.length < 2 || head.size <= MOST.map;
    one.curves = along.map((axis) => ({ axis, panel: new Panel("live-bars", `attention α along ${axis.reads}`), lines: attentionCurves(axis) }));
    if (!along.length && listed) one.weights = new Panel("live-bars", "attention α");
    if (axes.length === 2 && listed) one.map = new Panel("live-map", `α v: ${axes[0].reads} across, ${axes[1].reads} up`, "weighted values");
    else if (listed) one.values = new Panel("live-bars", axes.length > 2 ? `weighted values α v of all ${head.size.toLocaleString("en")} tokens` : "weighted values α v");
    const panels = [...one.curves.map((curve) => curve.panel), one.weights, one.map, one.values].filter(Boolean);
    one.row.append(made("div", { class: "live-row" }, ...panels.map((panel) => panel.root)));
    return one;
  }

  /* A head whose tokens attend to tokens. */
  tile(head) {
    const panel = new Panel("live-tile", `head ${head.h}`, `head ${head.h}: attention of every token`);
    return { head, panel, row: made("section", { class: "live-head" }, panel.root, made("p", { text: this.data.heads[head.h].purpose })) };
  }

  draw(found) {
    const sums = [];
    for (const one of this.heads) {
      if (this.layer.additive) sums.push([`head ${one.head.h}`, this.drawHead(one, found.heads[0][one.head.h])]);
      else this.drawTile(one, found);
    }
    if (this.hidden) this.drawHidden(found, sums);
    if (this.outputs) this.drawOutputs(found);
    if (this.layer.additive) this.drawSum(found, sums);
  }

  drawTile({ head, panel }, found) {
    const rows = found.heads.map((heads) => bucketed(heads[head.h].weights)), columns = rows[0].length;
    const at = heatmap(panel.canvas, rows.flat(), rows.length, columns, { range: [0, 1] });
    const name = (j) => this.data.tokens[j] || `token ${j + 1}`, best = rows[0].indexOf(Math.max(...rows[0]));
    panel.says(`most on ${name(best)}`, (px, py) => { const [i, j] = at(px, py); return `${rows.length > 1 ? `from ${name(i)} ` : ""}to ${name(j)}: α = ${short(rows[i][j], 3)}`; });
  }

  /* Returns what the head adds to the output that is shown. */
  drawHead(one, own) {
    const { head, known, title } = one, { output } = this.view, values = this.layer.t[`memory.${head.h}.values`];
    const part = head.out.reduce((sum, row, j) => sum + own.z[j] * row[output], 0);
    title.replaceChildren(made("b", { text: `head ${head.h}` }), ` ${known.purpose} `, made("span", { text: `adds ${short(part)}` }));
    for (const [a, curve] of one.curves.entries()) this.drawCurves(curve, own.axes[a]);
    const worth = (m) => head.out.reduce((sum, row, j) => sum + values[m * head.d_v + j] * row[output], 0);
    if (one.map) this.drawMap(one, own, worth);
    if (!one.weights && !one.values) return part;
    const weights = this.layer.allWeights(own), axis = known.axes && known.axes.length === 1 ? known.axes[0] : null, order = axis ? ranked(axis.peak) : [...weights.keys()];
    if (one.weights) this.drawBars(one.weights, order.map((m) => weights[m]), order, "α", "accent", axis);
    if (one.values) this.drawBars(one.values, order.map((m) => weights[m] * worth(m)), order, "α v", "second", axis);
    return part;
  }

  drawBars(panel, values, order, word, color, axis) {
    const shown = bucketed(values), whole = shown.length === values.length, best = word === "α" ? shown.indexOf(Math.max(...shown)) : -1;
    const at = bars(panel.canvas, shown, { color, mark: best, ends: axis ? [short(axis.range[0], 3), short(axis.range[1], 3)] : null });
    const where = (k) => (axis ? ` at ${axis.reads} = ${short(axis.peak[order[k]], 3)}` : "");
    panel.says(span(shown), (px) => { const k = at(px); return whole ? `token ${order[k]}${where(k)}: ${short(shown[k], 3)}` : short(shown[k], 3); });
  }

  drawCurves({ axis, panel, lines }, weights) {
    const { pen, width, height } = prepared(panel.canvas), [low, high] = axis.range, room = height - 17;
    const u = axis.direction.reduce((sum, d, i) => sum + d * this.view.x[i], 0), best = weights.indexOf(Math.max(...weights));
    const px = (v) => ((v - low) / (high - low || 1)) * width, py = (w) => 2 + (1 - w) * room;
    pen.fillStyle = ink("rule");
    pen.fillRect(0, py(0), width, 1);
    const stroke = (m, color, thick) => {
      pen.beginPath();
      lines[m].forEach((w, k) => pen.lineTo((k / (SAMPLES - 1)) * width, py(w)));
      Object.assign(pen, { strokeStyle: ink(color), lineWidth: thick });
      pen.stroke();
    };
    lines.forEach((_, m) => { if (m !== best) stroke(m, "accent", 1); });
    stroke(best, "mark", 2);
    pen.fillStyle = ink("quiet");
    pen.fillRect(px(u), 0, 1, room + 2);
    weights.forEach((w, m) => {
      pen.fillStyle = ink(m === best ? "mark" : "accent");
      pen.beginPath();
      pen.arc(px(u), py(w), m === best ? 4 : 2.5, 0, 7);
      if (w > 0.01) pen.fill();
    });
    edges(pen, [short(low, 3), short(high, 3)], width, height);
    const [least, most] = extent(lines[best]); // how far the attention moves along the whole axis: little where the head works by small differences
    panel.says(`token ${best}: ${short(weights[best], 3)} in [${Number(least.toFixed(4))}, ${Number(most.toFixed(4))}]`, (x) => {
      const k = Math.round((Math.min(Math.max(x / width, 0), 1)) * (SAMPLES - 1)), m = lines.reduce((a, line, i) => (line[k] > lines[a][k] ? i : a), 0);
      return `at ${short(low + (k / (SAMPLES - 1)) * (high - low), 3)}: token ${m}, α = ${short(lines[m][k], 3)}`;
    });
  }

  /* The first axis across, the second upwards, both in the order of the places where their tokens are strongest. */
  drawMap(one, own, worth) {
    const [across, up] = one.known.axes, columns = ranked(across.peak), rows = ranked(up.peak).reverse();
    const all = this.layer.allWeights(own), token = (i, j) => columns[j] * rows.length + rows[i];
    const values = rows.flatMap((_, i) => columns.map((__, j) => all[token(i, j)] * worth(token(i, j))));
    const at = heatmap(one.map.canvas, values, rows.length, columns.length, { scale: "signed" });
    one.map.says(span(values), (px, py) => { const [i, j] = at(px, py); return `${across.reads} = ${short(across.peak[columns[j]], 3)}, ${up.reads} = ${short(up.peak[rows[i]], 3)}: ${short(values[i * columns.length + j], 3)}`; });
  }

  drawHidden(found, sums) {
    const units = found.hidden[0], { additive, unitOut } = this.layer, { output } = this.view;
    const active = found.hidden.reduce((count, row) => count + row.reduce((own, value) => own + (value > 0), 0), 0);
    this.hiddenTitle.replaceChildren(made("b", { text: `${units.length.toLocaleString("en")} hidden unit${units.length === 1 ? "" : "s"}` }), ` ${active.toLocaleString("en")} active${this.many ? ` of ${(units.length * found.hidden.length).toLocaleString("en")} at all positions` : ""}`);
    const adds = additive ? units.map((value, j) => value * unitOut[j][output]) : units, shown = bucketed(adds);
    if (this.many) { this.drawUnits(found.hidden.map(bucketed)); return; }
    const at = bars(this.hidden.canvas, shown, { color: "second" });
    this.hidden.says(span(shown), (px) => `${shown.length === units.length ? `unit ${at(px)}: ` : ""}${short(shown[at(px)], 3)}`);
    if (additive) sums.push(["hidden units", adds.reduce((a, b) => a + b, 0)]);
  }

  drawUnits(rows) {
    const at = heatmap(this.hidden.canvas, rows.flat(), rows.length, rows[0].length), all = rows.flat();
    this.hidden.says(span(all), (px, py) => { const [i, j] = at(px, py); return `token ${i + 1}, unit ${j}: ${short(rows[i][j], 3)}`; });
  }

  drawOutputs(found) {
    const y = bucketed(found.y), f = this.view.f ? this.view.f(this.view.x) : null, level = f && f.length === y.length ? f : null;
    const at = bars(this.outputs.canvas, y, { mark: y.length === found.y.length ? this.view.output : -1, level });
    this.outputs.says(span(y), (px) => { const k = at(px); return `y${k + 1}: T = ${short(y[k])}${level ? `, f = ${short(level[k])}` : ""}`; });
  }

  /* T(x) as a sum: one row per head that is shown, the hidden units, and what is left. */
  drawSum(found, sums) {
    const rest = found.y[this.view.output] - sums.reduce((sum, [, value]) => sum + value, 0), size = Math.abs(found.y[this.view.output]);
    const rows = [...sums.slice(0, MOST.rows), ...(sums.length > MOST.rows ? [["other heads", sums.slice(MOST.rows).reduce((s, [, v]) => s + v, 0)]] : [])];
    if (Math.abs(rest) > 1e-12 * Math.max(size, 1)) rows.push(["affine part", rest]);
    this.sum.hidden = rows.length < 2;
    const most = Math.max(...rows.map(([, value]) => Math.abs(value))) || 1;
    this.sum.replaceChildren(made("h3", { text: "T(x) is the sum of" }), ...rows.map(([name, value]) => {
      const bar = made("i", { class: value < 0 ? "is-negative" : "" });
      bar.style.width = `${(50 * Math.abs(value)) / most}%`;
      bar.style.marginLeft = `${value < 0 ? 50 - (50 * Math.abs(value)) / most : 50}%`;
      return made("div", {}, made("span", { text: name }), made("span", {}, bar), made("span", { text: short(value) }));
    }));
  }
}

const span = (values) => `${short(Math.min(0, ...values), 3)} to ${short(Math.max(0, ...values), 3)}`;
const ranked = (peaks) => [...peaks.keys()].sort((a, b) => peaks[a] - peaks[b]);

/* Attention of every token of an axis over its range: softmax of the lines slope u + bias. */
function attentionCurves(axis) {
  const lines = axis.slope.map(() => new Float64Array(SAMPLES));
  for (let k = 0; k < SAMPLES; k++) {
    const u = axis.range[0] + (k / (SAMPLES - 1)) * (axis.range[1] - axis.range[0]);
    softmax(axis.slope.map((slope, m) => slope * u + axis.bias[m])).forEach((w, m) => { lines[m][k] = w; });
  }
  return lines;
}
