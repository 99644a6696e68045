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

/* A function from a point to its outputs, or null where the formula uses something this table does not have. */
function compiledFormula(formula) {
  if (!formula) return null;
  const known = (node) => node[0] in OPERATIONS || ["var", "num", "pow"].includes(node[0]);
  if (!formula.nodes.every(known)) return null;
  return (x) => {
    const values = [];
    for (const [op, args, value] of formula.nodes) {
      if (op === "var") values.push(x[value]);
      else if (op === "num") values.push(value);
      else if (op === "pow") values.push(values[args[0]] ** value);
      else values.push(OPERATIONS[op](...args.map((at) => values[at])));
    }
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
