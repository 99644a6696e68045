/* A finished result on the page: the claim, its size, the words and the certificate as tables. */
"use strict";

const WORDS = { heads: "head", tokens: "memory token", hidden_units: "hidden unit", parameters: "parameter", nonzeros: "nonzero weight" };
const DOWNLOADS = { zip: "Folder (zip)", onnx: "ONNX", torch: "PyTorch", c: "C99", report: "Report", html: "Live page" };
const ROWS = { function: "f", domain: "domain", names: "names", arithmetic: "arithmetic", method: "proof", boxes: "boxes", order: "Taylor order", lower: "lower bound", upper: "upper bound", witness: "largest error seen at", eps: "ε", assumptions: "assumptions", weights_sha256: "weights (SHA-256)", sha256: "certificate (SHA-256)", version: "version" };

/* What was ordered, in one line. */
function asked(order) {
  const to = order.eps ? `, to ε = ${typeset(order.eps)}` : "", format = order.format === "float64" ? "" : `, ${order.format}`;
  if (order.kind === "sort") return `sort ${order.length} numbers in [0, 1]${to}${format}`;
  if (order.kind === "formula") return `f = ${order.formula} on ${order.domain}${to}${format}`;
  return `${order.kind === "map" ? "the surface through a table" : "the rows of a table"}, output ${order.target}${to}${format}`;
}

function claimed(state) {
  const [sentence, ...rest] = state.claim.split(";");
  return [made("span", { class: `badge ${state.status}`, text: state.status }), made("span", { class: "bound", text: typeset(sentence) }), ...(rest.length ? [made("span", { class: "note", text: typeset(rest.join(";")) })] : [])];
}

function facts(state) {
  const proof = state.certificate, count = (value, word) => [value.toLocaleString("en"), `${word}${value === 1 ? "" : word === "box" ? "es" : "s"}`];
  const found = Object.entries(WORDS).filter(([name]) => state.size[name]).map(([name, word]) => count(state.size[name], word));
  found.push(proof.boxes ? count(proof.boxes, "box") : ["", `by ${proof.method}`], ["", proof.arithmetic], [state.seconds.toFixed(1), "seconds"]);
  return found.map(([value, word]) => made("li", {}, made("b", { text: value }), ` ${word}`));
}

/* Blocks of an explanation: a title each, and a table where there is one. */
function explained(blocks) {
  return blocks.map(({ title, header, rows, left }) => {
    const part = made("div", { class: "block" }, made("p", { class: rows.length ? "title" : "", text: title }));
    if (!rows.length) return part;
    const row = (tag, cells) => made("tr", {}, ...cells.map((text) => made(tag, { text })));
    part.append(made("div", { class: "wide" }, made("table", {}, made("thead", {}, row("th", header)), made("tbody", {}, ...rows.map((cells) => row("td", cells))))));
    if (left) part.append(made("p", { class: "about", text: `and ${left.toLocaleString("en")} more` }));
    return part;
  });
}

function certified(proof) {
  const text = (name, value) => {
    if (name === "domain") return value[0].map((low, i) => `[${low}, ${value[1][i]}]`).join(" × ");
    if (name === "assumptions") return value.join("; ");
    if (["lower", "upper", "eps"].includes(name)) return typeset(value > 0 && value < 1e-3 ? value.toExponential() : String(value));
    return Array.isArray(value) ? value.join(", ") : String(value);
  };
  const rows = Object.entries(ROWS).filter(([name]) => proof[name] !== null && proof[name] !== undefined && proof[name].length !== 0 && !(name === "boxes" && !proof.boxes));
  const table = made("table", {}, made("tbody", {}, ...rows.map(([name, word]) => made("tr", {}, made("th", { text: word, scope: "row" }), made("td", { text: text(name, proof[name]) })))));
  return [made("div", { class: "wide" }, table), made("details", {}, made("summary", { text: "as JSON" }), made("pre", { text: JSON.stringify(proof, null, 1) }))];
}
