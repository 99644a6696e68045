/* The layer in the browser: the forward pass of docs/layer.md on float64 numbers, with everything on the way kept. */
"use strict";

/* Base64 of little-endian numbers to a Float64Array; entries that are not listed are zero. */
function decoded(entry) {
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const values = new Float64Array(bytes(entry.values));
  if (entry.at === undefined) return values;
  const all = new Float64Array(entry.shape.reduce((a, b) => a * b, 1));
  new Uint32Array(bytes(entry.at)).forEach((place, i) => { all[place] = values[i]; });
  return all;
}

/* A matrix by the nonzero entries of its rows: x W + b costs what is there. */
class Matrix {
  constructor(values, rows, columns) {
    this.rows = rows;
    this.columns = columns;
    this.entries = [];
    for (let i = 0; i < rows; i++) {
      const at = [], weight = [];
      for (let j = 0; j < columns; j++) {
        const value = values[i * columns + j];
        if (value !== 0) { at.push(j); weight.push(value); }
      }
      this.entries.push([at, weight]);
    }
  }

  times(x, bias) {
    const y = bias ? Float64Array.from(bias) : new Float64Array(this.columns);
    for (let i = 0; i < this.rows; i++) {
      const [at, weight] = this.entries[i], value = x[i];
      for (let k = 0; k < at.length; k++) y[at[k]] += value * weight[k];
    }
    return y;
  }
}

function softmax(logits) {
  let top = -Infinity, sum = 0;
  for (const value of logits) if (value > top) top = value;
  const weights = Float64Array.from(logits, (value) => Math.exp(value - top));
  for (const value of weights) sum += value;
  for (let m = 0; m < weights.length; m++) weights[m] /= sum;
  return weights;
}

/* Logits, or kernel values for linear attention, to weights that sum to one. */
function weighted(config, logits) {
  if (config.attention === "softmax") return softmax(logits);
  if (config.attention === "topk") {
    const least = Float64Array.from(logits).sort().at(-Math.min(config.top_k, logits.length));
    return softmax(logits.map((value) => (value < least ? -Infinity : value)));
  }
  let kernel = logits;
  if (config.attention === "hardmax") {
    const top = Math.max(...logits);
    kernel = logits.map((value) => (value === top ? 1 : 0));
  } else if (config.feature === "taylor") {
    kernel = logits.map((value) => {
      let total = 1;
      for (let p = config.order; p > 0; p--) total = 1 + (value / p) * total;
      return total;
    });
  }
  const sum = kernel.reduce((a, b) => a + b, 0);
  return kernel.map((value) => value / sum);
}

const elu = (u) => (u > 0 ? u + 1 : Math.exp(u));

function dot(a, b, at, width) {
  let sum = 0;
  for (let k = 0; k < width; k++) sum += a[k] * b[at + k];
  return sum;
}

class Layer {
  constructor(data) {
    this.config = data.config;
    const c = this.config, shape = data.tensors;
    this.t = Object.fromEntries(Object.entries(shape).map(([name, entry]) => [name, decoded(entry)]));
    this.m = {};
    for (const [name, entry] of Object.entries(shape))
      if (name.startsWith("W_")) this.m[name.slice(2)] = new Matrix(this.t[name], entry.shape[0], entry.shape[1]);
    this.rows = c.layout === "tokens" ? c.input_shape[0] : 1;
    this.length = c.pieces || this.rows;
    this.inputs = c.input_shape.reduce((a, b) => a * b, 1);
    this.outputs = c.output_shape.reduce((a, b) => a * b, 1);
    this.tokens = c.layout !== "packed";
    let k = 0, v = 0;
    this.heads = c.heads.map((head, h) => {
      const own = { ...head, h, k, v, scale: 1 / Math.sqrt(head.d_k), counts: head.tokens };
      own.size = head.memory === "none" ? 0 : head.tokens.reduce((a, b) => a * b, 1);
      k += head.d_k;
      v += head.d_v;
      return own;
    });
    this.width = k;
    this.additive = c.layout === "packed" && c.norm === "none";
    if (this.additive) this.prepareParts();
  }

  /* What a unit of a head's value and of a hidden unit adds to each output: rows of W_O W_R and W_2 W_R. */
  prepareParts() {
    const through = (name, row) => {
      const width = this.m[name].columns, unit = this.t[`W_${name}`].subarray(row * width, (row + 1) * width);
      return this.m.R.times(unit);
    };
    for (const head of this.heads) head.out = Array.from({ length: head.d_v }, (_, j) => through("O", head.v + j));
    if (this.config.hidden) this.unitOut = Array.from({ length: this.config.hidden }, (_, j) => through("2", j));
  }

  norm(x, which) {
    const gain = this.t[`gain_${which}`], shift = this.t[`shift_${which}`], n = x.length;
    let mean = 0, variance = 0;
    for (const value of x) mean += value / n;
    for (const value of x) variance += (value - mean) ** 2 / n;
    const root = Math.sqrt(variance + 1e-5);
    return x.map((value, i) => ((value - mean) / root) * gain[i] + shift[i]);
  }

  embed(x, n) {
    const c = this.config, width = this.inputs / this.rows;
    let token = c.pieces ? x : x.subarray(n * width, (n + 1) * width);
    if (c.embedding === "piecewise") {
      token = Float64Array.from({ length: width * c.ramps }, (_, i) => {
        const t = (token[Math.floor(i / c.ramps)] - this.t.ramp_start[i]) * this.t.ramp_slope[i];
        return Math.min(Math.max(t, 0), 1);
      });
    }
    let e = this.m.E.times(token, this.t.b_E);
    if (c.pieces) e = e.slice(n * c.d_model, (n + 1) * c.d_model);  // every token is its own affine map of all of x
    if (c.positions !== "none") for (let i = 0; i < e.length; i++) e[i] += this.t.position[n * e.length + i];
    return e;
  }

  /* x: the numbers of a point. Returns {y, heads: [{axes, weights, z}], hidden}, the last two per token. */
  run(x) {
    const c = this.config, point = Float64Array.from(x);
    const e = Array.from({ length: this.length }, (_, n) => this.embed(point, n));
    const u = c.norm === "pre" ? e.map((row) => this.norm(row, "1")) : e;
    const keys = this.tokens ? u.map((row) => this.m.K.times(row, this.t.b_K)) : [];
    const values = this.tokens ? u.map((row) => this.m.V.times(row, this.t.b_V)) : [];
    const seen = [], hidden = [];
    const asking = c.pieces ? e.slice(0, 1) : e;  // of a layer of pieces the first token alone is read
    const stream = asking.map((own, n) => {
      const query = this.m.Q.times(u[n], this.t.b_Q);
      const found = this.heads.map((head) => this.head(head, query, keys, values));
      seen.push(found);
      const z = new Float64Array(this.m.O.rows);
      found.forEach((item, h) => z.set(item.z, this.heads[h].v));
      let r = this.m.O.times(z, this.t.b_O);
      if (c.residual) r = r.map((value, i) => own[i] + value);
      if (c.norm === "post") r = this.norm(r, "1");
      if (!c.hidden) return r;
      const inner = c.norm === "pre" ? this.norm(r, "2") : r;
      const active = this.m["1"].times(inner, this.t.b_1).map((value) => Math.max(value, 0));
      hidden.push(active);
      let y = this.m["2"].times(active, this.t.b_2);
      if (c.residual) y = y.map((value, i) => r[i] + value);
      return c.norm === "post" ? this.norm(y, "2") : y;
    });
    return { y: this.read(stream), heads: seen, hidden };
  }

  read(stream) {
    const c = this.config;
    if (c.readout === "each") {
      const rows = stream.map((row) => [...this.m.R.times(row, this.t.b_R)]);
      return Float64Array.from(rows.flat());
    }
    let row = stream[c.readout === "last" ? stream.length - 1 : 0];
    if (c.readout === "mean")
      row = row.map((_, i) => stream.reduce((sum, token) => sum + token[i], 0) / stream.length);
    return this.m.R.times(row, this.t.b_R);
  }

  /* One head for one token: weights over its tokens, by axes where they form a grid, and the average of the values. */
  head(head, query, keys, values) {
    const q = query.subarray(head.k, head.k + head.d_k).map((value) => value * head.scale);
    const name = `memory.${head.h}`;
    const own = keys.map((key) => this.score(q, key, head.k, head.d_k));
    if (head.memory === "grid" && this.config.attention === "softmax") return this.grid(head, q, own, values);
    const stored = head.memory === "none" ? [] : this.plainKeys(head);
    const logits = [...own, ...Array.from({ length: head.size }, (_, m) => this.score(q, stored, m * head.d_k, head.d_k))];
    const weights = weighted(this.config, logits);
    const z = new Float64Array(head.d_v), memory = this.t[`${name}.values`];
    weights.forEach((weight, m) => {
      for (let j = 0; j < head.d_v; j++)
        z[j] += weight * (m < own.length ? values[m][head.v + j] : memory[(m - own.length) * head.d_v + j]);
    });
    return { axes: null, weights, z };
  }

  score(q, key, at, width) {
    if (this.config.attention === "linear" && this.config.feature === "elu")
      return dot(q.map(elu), key.subarray(at, at + width).map(elu), 0, width);
    return dot(q, key, at, width);
  }

  plainKeys(head) {
    const name = `memory.${head.h}`;
    if (head.memory === "plain") return this.t[`${name}.keys`];
    head.written ??= this.writtenKeys(head, name);
    return head.written;
  }

  writtenKeys(head, name) {
    let keys = [new Float64Array(head.d_k)];
    head.counts.forEach((count, a) => {
      const axis = this.t[`${name}.axes.${a}`];
      keys = keys.flatMap((key) => Array.from({ length: count }, (_, m) => key.map((v, k) => v + axis[m * head.d_k + k])));
    });
    return Float64Array.from(keys.flatMap((key) => [...key]));
  }

  grid(head, q, own, values) {
    const name = `memory.${head.h}`;
    const logits = head.counts.map((count, a) => {
      const axis = this.t[`${name}.axes.${a}`];
      return Float64Array.from({ length: count }, (_, m) => dot(q, axis, m * head.d_k, head.d_k));
    });
    const axes = logits.map(softmax);
    let rest = this.t[`${name}.values`];
    for (const weights of axes) {
      const width = rest.length / weights.length, next = new Float64Array(width);
      for (let m = 0; m < weights.length; m++)
        for (let j = 0; j < width; j++) next[j] += weights[m] * rest[m * width + j];
      rest = next;
    }
    if (!own.length) return { axes, weights: null, z: rest };
    const mass = logits.reduce((sum, row) => {
      const top = Math.max(...row);
      return sum + top + Math.log(row.reduce((total, value) => total + Math.exp(value - top), 0));
    }, 0);
    const weights = softmax([...own, mass]);
    const z = rest.map((value) => value * weights.at(-1));
    values.forEach((row, n) => { for (let j = 0; j < head.d_v; j++) z[j] += weights[n] * row[head.v + j]; });
    return { axes, weights, z };
  }

  /* Weights of a packed head over all its tokens, grids multiplied out, row-major. */
  allWeights(found) {
    if (!found.axes) return found.weights;
    return found.axes.reduce((all, axis) => {
      const next = new Float64Array(all.length * axis.length);
      all.forEach((a, i) => axis.forEach((b, j) => { next[i * axis.length + j] = a * b; }));
      return next;
    }, Float64Array.of(1));
  }
}
