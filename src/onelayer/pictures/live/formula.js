/* f in the browser: the operations of the formula, one after another, at one point. For the eye; a proof it is not. */
"use strict";

/* Error function: its Taylor series near zero, a continued fraction beyond. */
function erf(x) {
  const a = Math.abs(x);
  if (a > 6) return Math.sign(x);
  if (a < 2.5) {
    let term = a, sum = a;
    for (let n = 1; n < 80; n++) { term *= (-a * a) / n; sum += term / (2 * n + 1); }
    return (Math.sign(x) * sum * 2) / Math.sqrt(Math.PI);
  }
  let tail = 0;
  for (let n = 60; n > 0; n--) tail = n / 2 / (a + tail);
  return Math.sign(x) * (1 - Math.exp(-a * a) / (a + tail) / Math.sqrt(Math.PI));
}

/* Logarithm of gamma for x > 0: Stirling's series beyond ten, steps down to x. */
function lgamma(x) {
  if (!(x > 0)) return NaN;
  let z = x, product = 1;
  for (; z < 10; z++) product *= z;
  const w = 1 / (z * z);
  const tail = (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188)))) / z;
  return (z - 0.5) * Math.log(z) - z + 0.5 * Math.log(2 * Math.PI) + tail - Math.log(product);
}

const OPERATIONS = {
  pi: () => Math.PI, e: () => Math.E,
  add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b, div: (a, b) => a / b, neg: (a) => -a,
  where: (u, a, b) => (u > 0 ? a : b), min: Math.min, max: Math.max, relu: (a) => Math.max(a, 0), sigmoid: (a) => 1 / (1 + Math.exp(-a)), erf, lgamma,
  sinrel: (a) => (a === 0 ? 1 : Math.sin(a) / a), exprel: (a) => (a === 0 ? 1 : Math.expm1(a) / a),
};
for (const name of ["abs", "floor", "sin", "cos", "tan", "exp", "log", "sqrt", "cbrt", "tanh", "atan", "asin", "acos", "sinh", "cosh",
  "asinh", "acosh", "atanh", "log1p", "expm1", "log2", "log10"]) OPERATIONS[name] = Math[name];

/* The k + 1 B-splines that are not zero on the piece of the axis where u lies, by the recursion of Cox and de Boor. */
function basis(knots, k, u) {
  let i = k;
  while (i < knots.length - k - 2 && u >= knots[i + 1]) i++;
  const values = [1];
  for (let d = 1; d <= k; d++) {
    values.push(0);
    for (let r = d; r >= 0; r--) {
      const at = i - d + r, share = (j) => (u - knots[j]) / (knots[j + d] - knots[j]);
      values[r] = (r > 0 ? values[r - 1] * share(at) : 0) + (r < d ? values[r] * (1 - share(at + 1)) : 0);
    }
  }
  return { first: i - k, values };
}

/* The tensor product of B-splines: degrees, the knots of every axis, coefficients with the last axis fastest. */
function splined([degrees, ...rest]) {
  const coefficients = rest.pop(), counts = rest.map((knots, a) => knots.length - degrees[a] - 1);
  return (...u) => {
    const along = u.map((value, a) => basis(rest[a], degrees[a], value));
    const sum = (a, place) => a === u.length ? coefficients[place] : along[a].values.reduce((total, b, r) => total + b * sum(a + 1, place * counts[a] + along[a].first + r), 0);
    return sum(0, 0);
  };
}

/* How the shares of the corners, which add up to one and give the point, grow along axis j; Gauss, largest pivot. */
function slopes(corners, j) {
  const size = corners.length, rows = Array.from({ length: size }, (_, i) => [...corners.map((corner) => (i + 1 < size ? corner[i] : 1)), i === j ? 1 : 0]);
  for (let c = 0; c < size; c++) {
    const best = rows.reduce((m, row, i) => (i > c && Math.abs(row[c]) > Math.abs(rows[m][c]) ? i : m), c);
    [rows[c], rows[best]] = [rows[best], rows[c]];
    for (const [i, row] of rows.entries()) if (i !== c) rows[i] = row.map((v, k) => v - (row[c] / rows[c][c]) * rows[c][k]);
  }
  return rows.map((row, i) => row[size] / row[i]);
}

/* Affine on every simplex; the one counts whose least share is the largest: the one that holds the point, if any. */
function faceted([points, values, indices]) {
  const dim = points.length / values.length, simplices = [];
  for (let k = 0; k < indices.length; k += dim + 1) {
    const own = indices.slice(k, k + dim + 1), corners = own.map((at) => points.slice(at * dim, (at + 1) * dim));
    const middle = corners[0].map((_, i) => corners.reduce((sum, corner) => sum + corner[i], 0) / own.length);
    const shifted = corners.map((corner) => corner.map((v, i) => v - middle[i]));
    simplices.push({ middle, values: own.map((at) => values[at]), grow: middle.map((_, j) => slopes(shifted, j)) });
  }
  return (...u) => {
    let least = -Infinity, found = NaN;
    for (const { middle, values: own, grow } of simplices) {
      const shares = own.map((_, i) => grow.reduce((sum, along, j) => sum + along[i] * (u[j] - middle[j]), 1 / own.length)), low = Math.min(...shares);
      if (low > least) [least, found] = [low, shares.reduce((sum, share, i) => sum + share * own[i], 0)];
    }
    return found;
  };
}

/* Operations with a parameter: of its value, the operation; of a variable and a number, what they are at x. */
const WITH_VALUE = { var: (i) => (x) => x[i], num: (number) => () => number, pow: (power) => (_, a) => a ** power };
for (const [name, read] of [["spline", splined], ["facets", faceted]]) WITH_VALUE[name] = (data) => { const f = read(data); return (_, ...args) => f(...args); };

/* A function from a point to its outputs, or null where the formula uses something this table does not have. */
function compiledFormula(formula) {
  if (!formula || !formula.nodes.every(([op]) => op in OPERATIONS || op in WITH_VALUE)) return null;
  const steps = formula.nodes.map(([op, args, value]) => [op in WITH_VALUE ? WITH_VALUE[op](value) : (_, ...given) => OPERATIONS[op](...given), args]);
  return (x) => {
    const values = [];
    for (const [step, args] of steps) values.push(step(x, ...args.map((at) => values[at])));
    return formula.outputs.map((at) => values[at]);
  };
}

/* The numbers in ascending order, or their sum with weights; null where that is not the function. */
function orderStatistics(order) {
  if (!order) return null;
  return (x) => {
    const sorted = [...x].sort((a, b) => a - b);
    return order.weights ? [sorted.reduce((sum, value, k) => sum + value * order.weights[k], 0)] : sorted;
  };
}
