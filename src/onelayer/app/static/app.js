/* The page: an order goes out, snapshots come in, a result is shown. Every state has an address. */
"use strict";

/** @param {string} id @returns {any} */
const at = (id) => document.getElementById(id);
const FIELDS = { formula: ["formula", "domain", "eps", "format"], sort: ["length", "eps", "format"], table: ["csv", "target", "format"], map: ["csv", "target", "eps", "format"] };
const DOWNLOADS = { zip: "folder (zip)", onnx: "ONNX", torch: "stock torch", c: "C99", report: "report", html: "live page" };
/** @type {EventSource | null} */
let stream = null;
let current = "";
let loaded = "";

function kind() {
  return document.querySelector("input[name=kind]:checked").value;
}

function showKind() {
  for (const field of document.querySelectorAll(".field[data-kinds]")) field.hidden = !field.dataset.kinds.split(" ").includes(kind());
}

/** @param {string} name */
function show(name) {
  for (const section of ["welcome", "working", "failed", "result"]) at(section).hidden = section !== name;
}

function clearWrong() {
  for (const line of document.querySelectorAll(".wrong")) line.textContent = "";
  for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

/** One line at the field it belongs to. @param {string} field @param {string} error */
function wrong(field, error) {
  const line = at(`wrong-${field}`) && !at(`wrong-${field}`).parentElement.hidden ? field : FIELDS[kind()][0];
  at(`wrong-${line}`).textContent = error;
  at(line).setAttribute("aria-invalid", "true");
}

/** @param {string} path @param {any} [body] */
async function asked(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options).catch(() => null);
  if (!answer) return { error: "the server does not answer; is it still running?" };
  const data = await answer.json().catch(() => ({ error: `the server said ${answer.status}` }));
  return data;
}

async function order(event) {
  event.preventDefault();
  clearWrong();
  at("go").disabled = true;
  const wanted = { kind: kind() };
  for (const name of FIELDS[kind()]) wanted[name] = at(name).value;
  const answer = await asked("/api/jobs", wanted);
  at("go").disabled = false;
  if (answer.error) { wrong(answer.field || "formula", answer.error); return; }
  history.pushState(null, "", `/r/${answer.id}`);
  follow(answer.id);
}

/** @param {string} id */
function follow(id) {
  if (stream) stream.close();
  current = id;
  show("working");
  at("stage").textContent = "waiting";
  at("enclosure").textContent = "";
  at("share").removeAttribute("value");
  at("cancel").disabled = false;
  draw([]);
  drawBoxes([]);
  stream = new EventSource(`/api/jobs/${id}/events`);
  stream.onmessage = (message) => { if (id === current) snapshot(JSON.parse(message.data)); };
}

function snapshot(state) {
  if (["done", "refused", "failed"].includes(state.state)) {
    if (stream) stream.close();
    if (state.state === "done") finished(state);
    else refused(state);
    return;
  }
  show("working");
  at("stage").textContent = state.stage;
  if (typeof state.share === "number") at("share").value = state.share;
  else at("share").removeAttribute("value");
  const last = state.history.at(-1);
  at("enclosure").textContent = last ? `${short(last[1] || 0)} ≤ sup|T − f| ≤ ${short(last[2])}` : "";
  draw(state.history, Number(state.order.eps));
  drawBoxes(state.boxes || []);
}

/* Boxes of the domain, in its first two coordinates, as their bounds become good enough. */
function drawBoxes(boxes) {
  const { pen, width, height } = prepared(at("boxes"));
  if (!boxes.length) return;
  const side = (i, pick) => boxes.reduce((m, box) => pick(m, box[i]), boxes[0][i]);
  const [left, right, bottom, top] = [side(0, Math.min), side(1, Math.max), side(2, Math.min), side(3, Math.max)];
  const x = (v) => 4 + ((v - left) / (right - left || 1)) * (width - 8), y = (v) => 18 + ((top - v) / (top - bottom || 1)) * (height - 22);
  pen.fillStyle = ink("quiet");
  pen.fillText(`${boxes.length.toLocaleString("en")} boxes proved`, 4, 11);
  pen.strokeStyle = ink("paper");
  for (const [a, b, c, d] of boxes) {
    pen.fillStyle = ink("good");
    pen.fillRect(x(a), y(d), x(b) - x(a), y(c) - y(d));
    pen.strokeRect(x(a), y(d), x(b) - x(a), y(c) - y(d));
  }
}

/* Upper and lower bounds over time, on a logarithmic scale, with the eps that is wanted. */
function draw(history, eps) {
  const { pen, width, height } = prepared(at("closing"));
  if (!history.length) return;
  const values = history.flatMap(([, low, high]) => [low, high]).concat(eps).filter((v) => v > 0);
  const low = Math.log10(Math.min(...values)) - 0.2, high = Math.log10(Math.max(...values)) + 0.2, end = Math.max(history.at(-1)[0], 0.1);
  const x = (t) => 52 + (t / end) * (width - 62), y = (v) => 6 + ((high - Math.log10(v)) / (high - low)) * (height - 26);
  pen.fillStyle = ink("quiet");
  for (let p = Math.ceil(low); p <= high; p += Math.max(1, Math.ceil((high - low) / 6))) pen.fillText(`1e${p}`, 4, y(10 ** p) + 4);
  pen.fillText("0 s", 52, height - 4);
  pen.fillText(`${end.toFixed(1)} s`, width - 40, height - 4);
  if (eps > 0) { pen.fillStyle = ink("mark"); pen.fillRect(52, y(eps), width - 62, 1); pen.fillText("ε", 40, y(eps) + 4); }
  for (const [index, color] of [[2, "accent"], [1, "second"]]) {
    pen.beginPath();
    for (const step of history) if (step[index] > 0) pen.lineTo(x(step[0]), y(step[index]));
    Object.assign(pen, { strokeStyle: ink(color), lineWidth: 2 });
    pen.stroke();
  }
}

function refused(state) {
  restore(state.order);
  show("failed");
  at("reason").textContent = state.error;
  if (state.state === "refused") wrong(state.field, state.error);
}

/* Put an order back into the form, so that a reload shows what was asked. */
function restore(given) {
  document.querySelector(`input[name=kind][value=${given.kind}]`).checked = true;
  showKind();
  for (const name of FIELDS[given.kind]) if (given[name] !== undefined) at(name).value = given[name];
}

async function finished(state) {
  restore(state.order);
  const proof = state.certificate, size = Object.entries(state.size).map(([name, count]) => `${count.toLocaleString("en")} ${name.replace("_", " ")}`).join(", ");
  at("claim").textContent = `${state.status}: ${state.claim}`;
  at("claim").className = `claim ${state.status}`;
  at("facts").textContent = `${size}. ${proof.boxes ? `${proof.boxes.toLocaleString("en")} boxes, ` : `${proof.method}, `}${proof.arithmetic}, ${state.seconds} s.`;
  at("again-line").textContent = state.wanted_tokens ? `ε would need about ${state.wanted_tokens.toLocaleString("en")} tokens.` : state.cancelled ? "Cancelled: this is the best found by then." : "";
  at("explain").textContent = state.explain;
  at("certificate").textContent = JSON.stringify(proof, null, 1);
  verdict(state.checked);
  show("result");
  if (loaded === state.id) return;
  loaded = state.id;
  const data = await asked(`/api/jobs/${state.id}/live`);
  if (state.id !== current) return;
  if (data.error) at("live").textContent = data.error;
  else mountLive(at("live"), data);
}

function verdict(found) {
  const line = at("verdict");
  line.textContent = found ? `${found.verdict}: ${found.reason} (${found.seconds.toFixed(1)} s)` : "";
  line.className = found ? (found.verdict === "accepted" ? "good" : "bad") : "";
}

async function recheck() {
  at("check").disabled = true;
  verdict(null);
  at("verdict").textContent = "checking …";
  const id = current, answer = await asked(`/api/jobs/${id}/check`, {});
  at("check").disabled = false;
  if (id !== current) return;
  if (answer.error) { at("verdict").textContent = answer.error; at("verdict").className = "bad"; } else verdict(answer);
}

/** @param {string} what @param {any} button */
async function download(what, button) {
  button.disabled = true;
  at("wrong-download").textContent = "";
  const answer = await fetch(`/api/jobs/${current}/files/${what}`).catch(() => null);
  button.disabled = false;
  if (!answer || !answer.ok) {
    const data = answer ? await answer.json().catch(() => ({})) : {};
    at("wrong-download").textContent = data.error || "the server does not answer; is it still running?";
    return;
  }
  const named = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition") || "");
  const link = made("a", { href: URL.createObjectURL(await answer.blob()), download: named ? named[1] : what });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function fill(example) {
  clearWrong();
  restore({ format: "float64", ...example });
  if (stream) stream.close();
  current = "";
  history.pushState(null, "", "/");
  show("welcome");
  at("go").focus();
}

async function begin() {
  at("order").addEventListener("submit", order);
  for (const radio of document.querySelectorAll("input[name=kind]")) radio.addEventListener("change", showKind);
  at("upload").addEventListener("change", async (event) => { const [file] = event.target.files; if (file) at("csv").value = await file.text(); });
  at("cancel").addEventListener("click", () => { at("cancel").disabled = true; at("stage").textContent = "cancelling"; asked(`/api/jobs/${current}/cancel`, {}); });
  at("check").addEventListener("click", recheck);
  for (const [what, text] of Object.entries(DOWNLOADS)) {
    const button = made("button", { type: "button", text, "data-what": what });
    button.addEventListener("click", () => download(what, button));
    at("downloads").append(button);
  }
  addEventListener("popstate", arrive);
  showKind();
  const gallery = await asked("/api/gallery");
  if (!gallery.error)
    at("gallery").replaceChildren(...gallery.map((example) => made("li", {}, made("button", { type: "button", onclick: () => fill(example) }, example.title, made("small", { text: example.about })))));
  await arrive();
}

/* What the address says: a result, or the beginning. */
async function arrive() {
  const found = /^\/r\/([0-9a-f]{16})$/.exec(location.pathname);
  if (!found) { current = ""; show("welcome"); return; }
  const state = await asked(`/api/jobs/${found[1]}`);
  if (state.error) { show("failed"); at("reason").textContent = state.error; return; }
  restore(state.order);
  follow(found[1]);
}

begin();
