/* The page: an order goes out, snapshots come in, a result is shown. Every state has an address. */
"use strict";

/** @param {string} id @returns {any} */
const at = (id) => document.getElementById(id);
const FIELDS = { formula: ["formula", "domain", "eps", "format"], sort: ["length", "eps", "format"], table: ["csv", "target", "format"], map: ["csv", "target", "eps", "format"] };
const ABOUT = {
  formula: "",
  sort: "Numbers in, the same numbers in order out: tokens that attend to tokens.",
  map: "A surface through the rows, proved between them too.",
  table: "Every row comes back as it was; nothing is said between rows.",
};
/** @type {EventSource | null} */
let stream = null;
let current = "";
let loaded = "";
let sampled = false;
let began = 0;

function kind() {
  return document.querySelector("input[name=kind]:checked").value;
}

function showKind() {
  for (const field of document.querySelectorAll(".field[data-kinds]")) field.hidden = !field.dataset.kinds.split(" ").includes(kind());
  at("kind-about").textContent = ABOUT[kind()];
}

/** @param {string} name */
function show(name) {
  for (const section of ["welcome", "working", "failed", "result"]) at(section).hidden = section !== name;
  document.title = name === "result" ? `${at("claim").textContent.split(" ")[0]} · onelayer` : "onelayer";
  if (name === "welcome" && !sampled) sample();
}

/* The layer of the first page; without it the page says nothing less. */
async function sample() {
  sampled = true;
  const data = await asks("/static/welcome.json");
  if (!data.error) mountLive(at("sample"), data);
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
  at(line).focus();
}

/** @param {string} path @param {any} [body] */
async function asks(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options).catch(() => null);
  if (!answer) return { error: "the server does not answer; is it still running?" };
  return answer.json().catch(() => ({ error: `the server said ${answer.status}` }));
}

async function order(event) {
  if (event) event.preventDefault();
  clearWrong();
  at("go").disabled = true;
  const wanted = { kind: kind() };
  for (const name of FIELDS[kind()]) wanted[name] = at(name).value;
  const answer = await asks("/api/jobs", wanted);
  at("go").disabled = false;
  if (answer.error) { wrong(answer.field || "formula", answer.error); return; }
  history.pushState(null, "", `/r/${answer.id}`);
  at("asked").textContent = asked(wanted);
  follow(answer.id);
}

/** @param {string} id */
function follow(id) {
  if (stream) stream.close();
  current = id;
  began = performance.now();
  show("working");
  at("stage").textContent = "waiting";
  at("enclosure").textContent = "";
  at("share").removeAttribute("value");
  at("cancel").disabled = false;
  draw(at("closing"), []);
  drawBoxes([]);
  at("working").scrollIntoView({ block: "nearest" });
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
  if (state.seconds) began = performance.now() - 1000 * state.seconds;
  at("asked").textContent = asked(state.order);
  if (!at("cancel").disabled) at("stage").textContent = state.stage;
  if (typeof state.share === "number") at("share").value = state.share;
  else at("share").removeAttribute("value");
  const last = state.history.at(-1);
  at("enclosure").textContent = last ? `${shortDown(last[1] || 0)} ≤ sup|T − f| ≤ ${shortUp(last[2])}` : state.detail || "";
  draw(at("closing"), state.history, Number(state.order.eps));
  drawBoxes(state.boxes || []);
}

/* Boxes of the domain, in its first two coordinates, as their bounds become good enough. */
function drawBoxes(boxes) {
  const { pen, width, height } = prepared(at("boxes"));
  at("boxes-title").textContent = boxes.length ? `${boxes.length.toLocaleString("en")} boxes proved so far` : "boxes proved so far";
  if (!boxes.length) { empty(pen, width, height, "none yet"); return; }
  const side = (i, pick) => boxes.reduce((m, box) => pick(m, box[i]), boxes[0][i]);
  const [left, right, bottom, top] = [side(0, Math.min), side(1, Math.max), side(2, Math.min), side(3, Math.max)];
  const x = (v) => 1 + ((v - left) / (right - left || 1)) * (width - 2), y = (v) => 1 + ((top - v) / (top - bottom || 1)) * (height - 2);
  pen.strokeStyle = ink("paper");
  for (const [a, b, c, d] of boxes) {
    pen.fillStyle = ink("good");
    pen.fillRect(x(a), y(d), x(b) - x(a), y(c) - y(d));
    pen.strokeRect(x(a), y(d), x(b) - x(a), y(c) - y(d));
  }
}

function empty(pen, width, height, text) {
  pen.fillStyle = ink("quiet");
  pen.textAlign = "center";
  pen.fillText(text, width / 2, height / 2);
  pen.textAlign = "left";
}

/* Upper and lower bounds over time, on a logarithmic scale, with the eps that is wanted. */
function draw(canvas, history, eps) {
  const { pen, width, height } = prepared(canvas);
  if (!history.length) { empty(pen, width, height, "fitting comes first"); return; }
  const values = history.flatMap(([, low, high]) => [low, high]).concat(eps).filter((v) => v > 0), edge = 46;
  const low = Math.log10(Math.min(...values)) - 0.2, high = Math.log10(Math.max(...values)) + 0.2, start = history[0][0], end = Math.max(history.at(-1)[0], start + 0.02);
  const x = (t) => edge + ((t - start) / (end - start)) * (width - edge - 8), y = (v) => 6 + ((high - Math.log10(v)) / (high - low)) * (height - 26);
  for (let p = Math.ceil(low); p <= high; p += Math.max(1, Math.ceil((high - low) / 6))) {
    pen.fillStyle = ink("rule");
    pen.fillRect(edge, y(10 ** p), width - edge - 8, 1);
    pen.fillStyle = ink("quiet");
    pen.fillText(short(10 ** p, 1), 4, y(10 ** p) + 4);
  }
  pen.fillText(`${start.toFixed(2)} s`, edge, height - 4);
  pen.textAlign = "right";
  pen.fillText(`${end.toFixed(2)} s`, width - 8, height - 4);
  pen.textAlign = "left";
  if (eps > 0) { pen.fillStyle = ink("mark"); pen.fillRect(edge, y(eps), width - edge - 8, 1.4); pen.fillText("ε", width - 18, y(eps) - 4); }
  for (const [index, color] of [[2, "accent"], [1, "second"]]) {
    pen.beginPath();
    for (const step of history) if (step[index] > 0) pen.lineTo(x(step[0]), y(step[index]));
    Object.assign(pen, { strokeStyle: ink(color), lineWidth: 2 });
    pen.stroke();
    pen.fillStyle = ink(color);
    for (const step of history) if (step[index] > 0) pen.fillRect(x(step[0]) - 2, y(step[index]) - 2, 4, 4);
  }
}

function refused(state) {
  restore(state.order);
  show("failed");
  at("reason").textContent = state.error;
  at("advice").textContent = state.state === "refused" ? "Change the marked field and build again." : "The order is still in the form: loosen ε or make the domain smaller, and build again.";
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
  at("claim").replaceChildren(...claimed(state));
  at("asked-for").textContent = asked(state.order);
  at("facts").replaceChildren(...facts(state));
  at("again-line").textContent = state.wanted_tokens ? `ε would need about ${state.wanted_tokens.toLocaleString("en")} tokens.` : state.cancelled ? "Cancelled: this is the best found by then." : "";
  at("explain").replaceChildren(...explained(state.explain));
  at("certificate").replaceChildren(...certified(state.certificate));
  verdict(state.checked);
  at("closed-card").hidden = state.history.length < 2;
  show("result");
  if (state.history.length > 1) draw(at("closed"), state.history, state.certificate.eps);
  if (loaded === state.id) return;
  loaded = "";
  at("live").replaceChildren(); // the layer of another result must not stand below this claim
  const data = await asks(`/api/jobs/${state.id}/live`);
  if (state.id !== current) return;
  if (data.error) { at("live").textContent = data.error; return; }
  mountLive(at("live"), data);
  loaded = state.id;
}

function verdict(found) {
  const line = at("verdict");
  line.textContent = found ? `${found.verdict}: ${typeset(found.reason)} (${found.seconds.toFixed(1)} s)` : "";
  line.className = found ? (found.verdict === "accepted" ? "good" : "bad") : "";
}

async function recheck() {
  at("check").disabled = true;
  verdict(null);
  at("verdict").textContent = "checking …";
  const id = current, answer = await asks(`/api/jobs/${id}/check`, {});
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

/* An example is built at once; its order stays in the form to be changed. */
function take(example) {
  restore({ format: "float64", ...example });
  order(null);
}

async function begin() {
  at("order").addEventListener("submit", order);
  for (const radio of document.querySelectorAll("input[name=kind]")) radio.addEventListener("change", showKind);
  at("upload").addEventListener("change", async (event) => { const [file] = event.target.files; if (file) at("csv").value = await file.text(); });
  at("cancel").addEventListener("click", () => { at("cancel").disabled = true; at("stage").textContent = "cancelling"; asks(`/api/jobs/${current}/cancel`, {}); });
  at("check").addEventListener("click", recheck);
  for (const [what, text] of Object.entries(DOWNLOADS)) {
    const button = made("button", { type: "button", text, "data-what": what });
    button.addEventListener("click", () => download(what, button));
    at("downloads").append(button);
  }
  addEventListener("popstate", arrive);
  setInterval(() => { if (!at("working").hidden) at("clock").textContent = `${((performance.now() - began) / 1000).toFixed(0)} s`; }, 250);
  showKind();
  const gallery = await asks("/api/gallery");
  if (!gallery.error)
    at("gallery").replaceChildren(...gallery.map((example) => made("li", {}, made("button", { type: "button", onclick: () => take(example) }, example.title, made("small", { text: example.about })))));
  await arrive();
}

/* What the address says: a result, or the beginning. */
async function arrive() {
  const found = /^\/r\/([0-9a-f]{16})$/.exec(location.pathname);
  if (stream) stream.close();
  if (!found) { current = ""; show("welcome"); return; }
  const state = await asks(`/api/jobs/${found[1]}`);
  if (state.error) { show("failed"); at("reason").textContent = state.error; at("advice").textContent = "A result has its address as long as its folder is there."; return; }
  restore(state.order);
  follow(found[1]);
}

begin();
