// The page: what is shown, and how it follows the controls.

import * as api from "./api.js";
import * as draw from "./canvas.js";
import { rank } from "./modes.js";

const $ = (id) => document.getElementById(id);
const MAX_MODES = 12;
const TITLES = { slices: "Lung lesions", guess: "Guessing game" };
const percent = (p) => (p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : `${(100 * p).toFixed(1)} %`);

const state = {
  models: [], examples: [],
  model: null, other: null, compare: false,
  source: null, // { kind: "example" | "digits" | "file", id, name, file, task, raters }
  slice: null, by: "mode", cut: null, coverage: "",
  layer: "answer", style: "outline", raters: false, opacity: 0.55, window: 1, level: 1,
  chosen: 0, hovered: null, member: null, opened: new Set(), active: 0,
  zoom: 1, x: 0, y: 0,
};
const panes = []; // { model, proposal, masks, ranked, paths, ... } one, or two when comparing
let asked = null;

// --- elements ------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
    else if (name === "class") found.className = value;
    else if (value === true) found.setAttribute(name, "");
    else if (value !== false && value !== null) found.setAttribute(name, value);
  }
  found.append(...children);
  return found;
}

let hide = 0;
function say(sentence) {
  const toast = $("toast");
  toast.textContent = sentence;
  toast.hidden = false;
  clearTimeout(hide);
  hide = setTimeout(() => { toast.hidden = true; }, 8000);
}

const busy = (on) => document.body.classList.toggle("busy", on);

// --- models and images ---------------------------------------------------------------------------

const modelOf = (name) => state.models.find((m) => m.name === name);
const ofTask = (task) => state.models.filter((m) => m.task === task);

function listModels() {
  for (const id of ["model", "other"]) {
    $(id).replaceChildren(...state.models.map((m) => element("option", { value: m.name }, m.name)));
  }
  $("model").value = state.model;
  $("compare").hidden = state.models.length < 2;
}

function suit(task) {
  // a model that was trained on such images, and another one to compare it with
  const fitting = ofTask(task);
  if (fitting.length && modelOf(state.model).task !== task) state.model = fitting[0].name;
  const others = fitting.filter((m) => m.name !== state.model);
  if (!state.other || state.other === state.model || modelOf(state.other).task !== modelOf(state.model).task) {
    state.other = (others[0] || state.models.find((m) => m.name !== state.model) || {}).name || null;
  }
  $("model").value = state.model;
  if (state.other) $("other").value = state.other;
}

function listExamples() {
  const groups = Object.entries(TITLES).map(([task, title]) => {
    const found = state.examples.filter((e) => e.task === task);
    if (!found.length) return null;
    const items = found.map((e) => element("button", {
      class: "example", title: e.note, "data-example": e.id, "aria-pressed": "false",
      onclick: () => choose(exampleSource(e)),
    }, element("img", { src: `data:image/png;base64,${e.image}`, alt: "" }), element("span", {}, e.name)));
    return element("div", {}, element("h2", {}, title,
      task === "slices" ? element("small", {}, "computed phantoms") : ""),
    element("div", { class: `grid ${task}` }, ...items));
  });
  $("examples").replaceChildren(...groups.filter(Boolean));
}

function exampleSource(example) {
  const bytes = Uint8Array.from(atob(example.image), (c) => c.charCodeAt(0));
  const file = new File([bytes], `${example.id}.png`, { type: "image/png" });
  return { kind: "example", id: example.id, name: example.name, note: example.note, file,
    task: example.task, raters: example.raters };
}

async function choose(source) {
  state.source = source;
  state.slice = null;
  state.zoom = 1; state.x = 0; state.y = 0; state.window = 1; state.level = 1;
  state.chosen = 0; state.opened.clear();
  if (source.task) suit(source.task);
  for (const button of document.querySelectorAll("[data-example]")) {
    button.setAttribute("aria-pressed", String(button.dataset.example === source.id));
  }
  $("composer").hidden = !ofTask("guess").length || modelOf(state.model).task !== "guess";
  source.masks = source.raters ? await Promise.all(source.raters.map((r) => draw.grey(r.png))) : null;
  await answer();
}

async function answer() {
  asked?.abort();
  asked = new AbortController();
  const { signal } = asked;
  const names = state.compare && state.other ? [state.model, state.other] : [state.model];
  busy(true);
  const began = performance.now();
  try {
    const found = await Promise.all(names.map(async (name) => {
      const proposal = await api.propose(state.source.file, { model: name, slice: state.slice }, signal);
      const masks = await Promise.all(proposal.answers.map((a) => draw.grey(a.mask.png)));
      const model = modelOf(name);
      const labels = model.answers === "labels";
      const maps = draw.expected(masks, proposal.answers.map((a) => a.prob), labels);
      return { model, proposal, masks, labels, maps, image: draw.pixels(proposal.image), paths: [] };
    }));
    if (signal.aborted) return;
    panes.length = 0;
    panes.push(...found);
    state.active = 0;
    state.cut = state.cut === null ? found[0].model.cut : state.cut;
    state.slice = found[0].image.slices > 1 ? found[0].image.slice : null;
    state.ms = performance.now() - began;
    buildPanes();
    show();
  } catch (error) {
    if (error.name === "AbortError") return;
    say(error.message);
  } finally {
    if (!signal.aborted) busy(false);
  }
}

// --- ranking -------------------------------------------------------------------------------------

function cutOf(pane) {
  return pane === panes[0] || pane.model.task === panes[0].model.task ? state.cut : pane.model.cut;
}

function rankAll() {
  for (const pane of panes) {
    const calibrated = pane.model.coverage;
    const at = state.by === "mode" ? calibrated.findIndex((c) => String(c) === state.coverage) : -1;
    pane.limit = at < 0 ? null : pane.model.limits[at];
    const cut = at < 0 ? cutOf(pane) : pane.model.cut;
    pane.ranked = rank(pane.proposal, { by: state.by, cut, limit: pane.limit, max: MAX_MODES });
  }
  const count = panes[state.active].ranked.modes.length;
  state.chosen = Math.min(state.chosen, count - 1);
}

const shownMode = (pane) => {
  const at = state.hovered !== null && pane === panes[state.active] ? state.hovered : state.chosen;
  return Math.min(at, pane.ranked.modes.length - 1);
};

// --- drawing -------------------------------------------------------------------------------------

function buildPanes() {
  $("panes").replaceChildren(...panes.map((pane, i) => {
    const wide = pane.image.width > 2 * pane.image.height;
    pane.canvas = element("canvas", { role: "img", tabindex: "0", class: wide ? "wide" : "" });
    pane.strip = element("div", { class: "strip" });
    pane.caption = element("figcaption", {});
    pane.image_ = null;
    const figure = element("figure", { class: "pane" }, pane.canvas, pane.caption, pane.strip);
    figure.addEventListener("pointerdown", () => activate(i), { capture: true });
    listen(pane.canvas);
    sizes.observe(pane.canvas);
    return figure;
  }));
  $("panes").classList.toggle("two", panes.length > 1);
}

function activate(i) {
  if (state.active === i || i >= panes.length) return;
  state.active = i;
  state.hovered = null;
  show();
}

const sizes = new ResizeObserver(() => requestAnimationFrame(paintAll));

function windowOf(pane) {
  const [low, high] = pane.image.window;
  const width = Math.max((high - low) * state.window, 1e-6);
  const centre = low + ((high - low) / 2) * state.level;
  return [centre - width / 2, centre + width / 2];
}

function picture(pane) {
  const [low, high] = windowOf(pane);
  const key = `${low} ${high}`;
  if (pane.image_?.key !== key) pane.image_ = { key, canvas: draw.windowed(pane.image, low, high) };
  return pane.image_.canvas;
}

const path = (pane, k) => (pane.paths[k] ??= draw.outline(pane.masks[k], pane.labels));

function place(pane, width, height) {
  const fit = Math.min(width / pane.image.width, height / pane.image.height);
  const scale = fit * state.zoom;
  return {
    scale,
    left: width / 2 - (pane.image.width * scale) / 2 + state.x * scale,
    top: height / 2 - (pane.image.height * scale) / 2 + state.y * scale,
  };
}

function paint(pane, context, width, height, { scale, left, top }) {
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, width, height);
  context.setTransform(scale, 0, 0, scale, left, top);
  context.imageSmoothingEnabled = scale < 8 && pane.image.width > 120;
  context.drawImage(picture(pane), 0, 0);
  const at = shownMode(pane);
  const mode = pane.ranked.modes[at];
  const k = pane === panes[state.active] && state.member !== null ? state.member : mode.representative;
  const hex = draw.colour(at);
  context.globalAlpha = state.opacity;
  if (state.layer === "mean" || state.layer === "disagreement") {
    pane[state.layer] ??= draw.heat(pane.maps[state.layer], pane.image.width, pane.image.height);
    context.drawImage(pane[state.layer], 0, 0);
  } else if (state.layer === "answer") {
    if (state.style === "fill") {
      context.imageSmoothingEnabled = false;
      context.drawImage(draw.filled(pane.masks[k], hex, pane.labels), 0, 0);
    }
    context.globalAlpha = 1;
    context.lineCap = "round";
    context.lineWidth = 4 / scale;
    context.strokeStyle = "rgb(0 0 0 / 45%)";
    context.stroke(path(pane, k));
    context.lineWidth = 2 / scale;
    context.strokeStyle = hex;
    context.stroke(path(pane, k));
  }
  context.globalAlpha = 1;
  const raters = state.source.masks;
  if (state.raters && raters && raters[0].width === pane.image.width) {
    context.setLineDash([4 / scale, 3 / scale]);
    context.lineWidth = 1.25 / scale;
    context.strokeStyle = "#ffffff";
    state.source.paths ??= raters.map((m) => draw.outline(m));
    for (const each of state.source.paths) context.stroke(each);
    context.setLineDash([]);
  }
}

function paintAll() {
  for (const pane of panes) {
    if (!pane.ranked || !pane.canvas.clientWidth) continue;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [pane.canvas.clientWidth * ratio, pane.canvas.clientHeight * ratio].map(Math.round);
    if (pane.canvas.width !== width || pane.canvas.height !== height) {
      Object.assign(pane.canvas, { width, height });
    }
    paint(pane, pane.canvas.getContext("2d"), width, height, place(pane, width, height));
    const mode = pane.ranked.modes[shownMode(pane)];
    const what = { answer: `answer ${shownMode(pane) + 1}, ${percent(mode.prob)}`, mean: "mean of all answers",
      disagreement: "where answers disagree", none: "image alone" }[state.layer];
    const empty = state.layer === "answer" && !draw.area(pane.masks[mode.representative], pane.labels);
    pane.caption.replaceChildren(element("b", {}, pane.model.name), ` ${what}${empty ? " (empty mask)" : ""}`);
    pane.canvas.setAttribute("aria-label", `${state.source.name}, ${pane.model.name}: ${what}`);
  }
}

function thumbnail(pane, k, hex, size) {
  const wide = pane.image.width > 2 * pane.image.height;
  const [w, h] = wide ? [2 * size, Math.round((2 * size * pane.image.height) / pane.image.width)] : [size, size];
  const target = draw.canvas(2 * w, 2 * h);
  const context = target.getContext("2d");
  const scale = Math.min((2 * w) / pane.image.width, (2 * h) / pane.image.height);
  context.setTransform(scale, 0, 0, scale, (2 * w - pane.image.width * scale) / 2, (2 * h - pane.image.height * scale) / 2);
  context.drawImage(picture(pane), 0, 0);
  context.globalAlpha = 0.5;
  context.imageSmoothingEnabled = false;
  context.drawImage(draw.filled(pane.masks[k], hex, pane.labels), 0, 0);
  context.globalAlpha = 1;
  context.lineWidth = 2.5 / scale;
  context.strokeStyle = hex;
  context.stroke(path(pane, k));
  target.style.width = `${w}px`;
  target.style.height = `${h}px`;
  target.setAttribute("aria-hidden", "true");
  return target;
}

// --- the list of answers -------------------------------------------------------------------------

function sizeOf(pane, k) {
  const count = draw.area(pane.masks[k], pane.labels);
  if (!count) return "empty mask";
  const { spacing } = pane.image;
  return spacing ? `${(count * spacing[0] * spacing[1]).toFixed(0)} mm²` : `${count.toLocaleString("en")} px`;
}

function modeItem(pane, mode, i) {
  const count = mode.members.length;
  const code = pane.proposal.answers[mode.representative].code;
  const label = state.by === "code" ? (code < 0 ? `sample ${mode.representative + 1}` : `code ${code}`)
    : `${count} ${code < 0 ? "sample" : "code"}${count > 1 ? "s" : ""}`;
  const bar = element("span", { class: "bar" }, element("i", {}));
  bar.firstChild.style.width = `${100 * mode.prob}%`;
  bar.firstChild.style.background = draw.colour(i);
  const button = element("button", {
    class: "mode", "data-mode": i, "aria-pressed": String(i === state.chosen),
    "aria-label": `Answer ${i + 1}, probability ${percent(mode.prob)}, ${sizeOf(pane, mode.representative)}`,
    onclick: () => { state.chosen = i; state.hovered = null; state.layer = "answer"; show(); },
    onmouseenter: () => { state.hovered = i; paintAll(); },
    onmouseleave: () => { state.hovered = null; paintAll(); },
  }, thumbnail(pane, mode.representative, draw.colour(i), 52),
  element("span", { class: "text" },
    element("span", { class: "line" }, element("kbd", {}, String(i + 1)), element("b", { class: "prob" }, percent(mode.prob)),
      element("small", {}, sizeOf(pane, mode.representative))),
    bar, element("small", { class: "about" }, label)));
  const item = element("li", {}, button);
  if (count > 1) {
    const open = state.opened.has(i);
    item.append(element("button", {
      class: "open", "aria-expanded": String(open), "aria-label": `Members of answer ${i + 1}`,
      onclick: () => { if (open) state.opened.delete(i); else state.opened.add(i); listModes(); },
    }, "▾"));
    if (open) {
      item.append(element("div", { class: "members" }, ...mode.members.slice(0, 24).map((k) => {
        const a = pane.proposal.answers[k];
        const name = a.code < 0 ? `sample ${k + 1}` : `code ${a.code}`;
        return element("button", {
          class: "member", "aria-label": `${name}, probability ${percent(a.prob)}`,
          onmouseenter: () => preview(i, k), onfocus: () => preview(i, k),
          onmouseleave: () => preview(null, null), onblur: () => preview(null, null),
        }, thumbnail(pane, k, draw.colour(i), 40), element("small", {}, name), element("small", {}, percent(a.prob)));
      })));
    }
  }
  return item;
}

function preview(mode, member) {
  state.hovered = mode;
  state.member = member;
  paintAll();
}

function listModes() {
  const pane = panes[state.active];
  const { modes, rest, hidden } = pane.ranked;
  $("modes").replaceChildren(...modes.map((mode, i) => modeItem(pane, mode, i)));
  const bar = element("span", { class: "bar" }, element("i", {}));
  bar.firstChild.style.width = `${100 * rest}%`;
  $("rest").replaceChildren(
    element("span", { class: "line" }, element("span", {}, "Rest"), element("b", { class: "prob", id: "rest-prob" }, percent(rest)),
      element("small", {}, hidden ? `${hidden} further answer${hidden > 1 ? "s" : ""}, and what no answer holds` : "what none of these answers holds")), bar);
  $("ranking-model").textContent = panes.length > 1 ? pane.model.name : "";
}

function listStrips() {
  panes.forEach((pane, p) => {
    if (panes.length < 2) { pane.strip.replaceChildren(); return; }
    const items = pane.ranked.modes.slice(0, 6).map((mode, i) => element("button", {
      "aria-pressed": String(i === Math.min(state.chosen, pane.ranked.modes.length - 1)),
      "aria-label": `${pane.model.name}, answer ${i + 1}, ${percent(mode.prob)}`,
      onclick: () => { state.active = p; state.chosen = i; state.layer = "answer"; show(); },
    }, thumbnail(pane, mode.representative, draw.colour(i), 36), element("small", {}, percent(mode.prob))));
    const shown = pane.ranked.modes.slice(0, 6).reduce((sum, m) => sum + m.prob, 0);
    pane.strip.replaceChildren(...items, element("span", { class: "strip-rest" }, `rest ${percent(Math.max(0, 1 - shown))}`));
  });
}

function listPrior() {
  const pane = panes[state.active];
  const { answers } = pane.proposal;
  const samples = pane.model.samples;
  $("prior-what").textContent = samples ? "samples" : `${answers.length} codes`;
  const of = new Map();
  pane.ranked.modes.forEach((mode, i) => mode.members.forEach((k) => of.set(k, i)));
  const top = Math.max(...answers.map((a) => a.prob));
  $("prior").replaceChildren(...answers.slice(0, 64).map((a, k) => {
    const bar = element("i", { title: `${a.code < 0 ? `sample ${k + 1}` : `code ${a.code}`}: ${percent(a.prob)}` });
    bar.style.height = `${Math.max(3, (100 * a.prob) / top)}%`;
    bar.style.background = of.has(k) ? draw.colour(of.get(k)) : "var(--faint)";
    return bar;
  }));
  $("prior").setAttribute("aria-label", `Probabilities of ${answers.length} answers; the highest is ${percent(top)}`);
}

// --- controls ------------------------------------------------------------------------------------

function showControls() {
  const pane = panes[state.active];
  const press = (name, value) => document.querySelectorAll(`[data-${name}]`).forEach((b) =>
    b.setAttribute("aria-pressed", String(b.dataset[name] === value)));
  press("layer", state.layer); press("style", state.style); press("by", state.by);
  $("raters").setAttribute("aria-pressed", String(state.raters && Boolean(state.source.masks)));
  $("raters").disabled = !state.source.masks;
  $("compare").setAttribute("aria-pressed", String(state.compare));
  $("other-field").hidden = !state.compare;
  const promised = state.coverage !== "" && pane.limit !== null;
  $("cut").max = pane.model.max_cut;
  $("cut").step = pane.model.max_cut / 100;
  $("cut").value = promised ? pane.model.cut : cutOf(pane);
  $("cut").disabled = state.by === "code" || promised;
  $("cut-value").textContent = Number($("cut").value).toFixed(2);
  const calibrated = Math.abs(Number($("cut").value) - pane.model.cut) < 0.005;
  const kind = pane.model.coverage.length ? "calibrated" : "default";
  $("cut-note").textContent = calibrated ? kind : "";
  $("coverage").replaceChildren(element("option", { value: "" }, "all answers"),
    ...pane.model.coverage.map((c) => element("option", { value: c }, `${Math.round(100 * c)} % of raters`)));
  $("coverage").value = pane.model.coverage.map(String).includes(state.coverage) ? state.coverage : "";
  $("coverage").title = pane.model.coverage.length ? "" : "This model was not calibrated for it";
  $("coverage").disabled = !pane.model.coverage.length || state.by === "code";
  const { slices, slice, width, height, spacing, dtype } = pane.image;
  $("slice-field").hidden = slices < 2;
  $("slice").max = slices - 1;
  $("slice").value = slice;
  $("slice-value").textContent = `${slice + 1} / ${slices}`;
  $("opacity").value = 100 * state.opacity;
  $("opacity-value").textContent = `${Math.round(100 * state.opacity)} %`;
  const [low, high] = windowOf(pane);
  $("window").value = 100 * state.window;
  $("level").value = 100 * state.level;
  $("window-value").textContent = Math.round(high - low);
  $("level-value").textContent = Math.round((high + low) / 2);
  const geometry = spacing ? `, ${spacing.map((s) => Number(s.toFixed(2))).join(" × ")} mm` : "";
  $("status").textContent = `${state.source.name}: ${width} × ${height} px${geometry}, ${dtype}`
    + `. ${state.source.note || ""} Answered in ${Math.round(state.ms)} ms.`;
  document.querySelector("[data-download=nifti]").hidden = !spacing;
  document.querySelector("[data-download=dicom-seg]").hidden = !(state.source.dicom && slices === 1);
}

function show() {
  if (!panes.length) return;
  rankAll();
  showControls();
  listModes();
  listStrips();
  listPrior();
  paintAll();
  keepLink();
}

function step(by) {
  const count = panes[state.active].ranked.modes.length;
  state.chosen = (state.chosen + by + count) % count;
  state.layer = "answer";
  state.hovered = null;
  show();
  document.querySelector(`[data-mode="${state.chosen}"]`)?.scrollIntoView({ block: "nearest" });
}

// Zoom so that what is under a point of a canvas stays there; without one, around the middle.
function zoom(factor, event = null) {
  const before = state.zoom;
  state.zoom = Math.min(40, Math.max(1, state.zoom * factor));
  const pane = event && panes.find((p) => p.canvas === event.target);
  if (pane) {
    const { width, height, left, top } = pane.canvas.getBoundingClientRect();
    const { scale } = place(pane, width, height);
    const change = (1 - state.zoom / before) / scale;
    state.x += (event.clientX - left - width / 2) * change;
    state.y += (event.clientY - top - height / 2) * change;
  }
  if (state.zoom === 1) { state.x = 0; state.y = 0; }
  paintAll();
}

let redo = 0;
function toSlice(value) {
  const { slices } = panes[0].image;
  state.slice = Math.min(slices - 1, Math.max(0, value));
  $("slice").value = state.slice;
  $("slice-value").textContent = `${state.slice + 1} / ${slices}`;
  clearTimeout(redo);
  redo = setTimeout(answer, 120);
}

async function toggleCompare() {
  state.compare = !state.compare && state.models.length > 1;
  suit(modelOf(state.model).task);
  $("other-field").hidden = !state.compare;
  await answer();
}

const set = (name, value) => { state[name] = value; show(); };

for (const [name, key] of [["layer", "layer"], ["style", "style"], ["by", "by"]]) {
  document.querySelectorAll(`[data-${name}]`).forEach((button) => button.addEventListener("click", () => {
    if (key === "by") { state.chosen = 0; state.opened.clear(); }
    set(key, button.dataset[name]);
  }));
}
$("raters").addEventListener("click", () => set("raters", !state.raters));
$("opacity").addEventListener("input", (e) => set("opacity", e.target.value / 100));
$("window").addEventListener("input", (e) => set("window", e.target.value / 100));
$("level").addEventListener("input", (e) => set("level", e.target.value / 100));
$("cut").addEventListener("input", (e) => { state.opened.clear(); set("cut", Number(e.target.value)); });
$("coverage").addEventListener("change", (e) => { state.opened.clear(); set("coverage", e.target.value); });
$("slice").addEventListener("input", (e) => toSlice(Number(e.target.value)));
$("zoom-in").addEventListener("click", () => zoom(1.4));
$("zoom-out").addEventListener("click", () => zoom(1 / 1.4));
$("zoom-fit").addEventListener("click", () => zoom(0));
$("compare").addEventListener("click", toggleCompare);
$("help").addEventListener("click", () => $("keys").showModal());
$("theme").addEventListener("click", () => {
  const root = document.documentElement.dataset;
  root.theme = root.theme === "dark" ? "light" : "dark";
  localStorage.setItem("mue-theme", root.theme);
});
$("model").addEventListener("change", (e) => {
  const before = modelOf(state.model).task;
  state.model = e.target.value;
  state.cut = null; state.coverage = ""; state.chosen = 0;
  const { task } = modelOf(state.model);
  suit(task);
  const first = state.examples.find((x) => x.task === task);
  if (task !== before && state.source.kind !== "file" && first) choose(exampleSource(first));
  else answer();
});
$("other").addEventListener("change", (e) => { state.other = e.target.value; answer(); });

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  const range = event.target.type === "range";
  if (event.ctrlKey || event.metaKey || event.altKey || !panes.length) return;
  if (typing && !(range && !event.key.startsWith("Arrow"))) return;
  const key = event.key.toLowerCase();
  const layers = { a: "answer", m: "mean", d: "disagreement", n: "none" };
  if (/^[1-9]$/.test(key)) {
    if (Number(key) > panes[state.active].ranked.modes.length) return;
    state.chosen = Number(key) - 1; state.hovered = null; set("layer", "answer");
  } else if (key in layers) set("layer", layers[key]);
  else if (key === "arrowright" || key === "arrowdown") step(1);
  else if (key === "arrowleft" || key === "arrowup") step(-1);
  else if (key === "o") set("style", "outline");
  else if (key === "f") set("style", "fill");
  else if (key === "r" && state.source.masks) set("raters", !state.raters);
  else if (key === "c") toggleCompare();
  else if (key === "+" || key === "=") zoom(1.4);
  else if (key === "-") zoom(1 / 1.4);
  else if (key === "0") zoom(0);
  else if (key === "[" && panes[0].image.slices > 1) toSlice(panes[0].image.slice - 1);
  else if (key === "]" && panes[0].image.slices > 1) toSlice(panes[0].image.slice + 1);
  else if (key === "?") $("keys").showModal();
  else return;
  event.preventDefault();
});

function listen(target) {
  const held = new Map();
  target.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), event);
  }, { passive: false });
  target.addEventListener("pointerdown", (event) => {
    target.setPointerCapture(event.pointerId);
    held.set(event.pointerId, [event.clientX, event.clientY]);
  });
  target.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) return;
    const now = [event.clientX, event.clientY];
    if (held.size === 2) {
      const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const far = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
      zoom(far(now) / Math.max(far(before), 1));
    } else if (state.zoom > 1) {
      const pane = panes.find((p) => p.canvas === target);
      const { scale } = place(pane, target.clientWidth, target.clientHeight);
      state.x += (now[0] - before[0]) / scale;
      state.y += (now[1] - before[1]) / scale;
      paintAll();
    }
    held.set(event.pointerId, now);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    target.addEventListener(name, (event) => held.delete(event.pointerId));
  }
}

// --- uploads -------------------------------------------------------------------------------------

async function upload(file) {
  if (!file) return;
  const dicom = (await file.slice(128, 132).text()) === "DICM";
  await choose({ kind: "file", name: file.name, file, dicom, raters: null });
}
$("file").addEventListener("change", (e) => { upload(e.target.files[0]); e.target.value = ""; });
addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("over"); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("over"); });
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  upload(event.dataTransfer.files[0]);
});

// --- the guessing game ---------------------------------------------------------------------------

const digits = [[1, 0], [2, 1], [3, 2], [4, 3]];
const HANDS = 12;

async function slot(i) {
  const url = URL.createObjectURL(await api.digit(...digits[i]));
  const picture = element("img", { src: url, alt: `digit ${digits[i][0]}` });
  picture.addEventListener("load", () => URL.revokeObjectURL(url));
  const turn = (by) => () => {
    digits[i] = [(digits[i][0] + by + 10) % 10, digits[i][1]];
    compose(i);
  };
  const other = () => { digits[i] = [digits[i][0], (digits[i][1] + 1) % HANDS]; compose(i); };
  return element("div", { class: "slot" },
    element("button", { "aria-label": `Place ${i + 1}: next digit`, onclick: turn(1) }, "▴"),
    element("button", { class: "digit", title: "Another handwriting", "aria-label": `Place ${i + 1}: digit ${digits[i][0]}, another handwriting`, onclick: other }, picture),
    element("button", { "aria-label": `Place ${i + 1}: digit before`, onclick: turn(-1) }, "▾"));
}

async function listSlots() {
  $("slots").replaceChildren(...await Promise.all(digits.map((_, i) => slot(i))));
}

async function compose(changed) {
  const old = $("slots").children[changed];
  if (old) {
    const label = document.activeElement?.getAttribute("aria-label");
    old.replaceWith(await slot(changed));
    const same = [...$("slots").children[changed].children].find((b) => label?.startsWith(b.getAttribute("aria-label").split(": digit")[0]) && b.textContent === label);
    same?.focus();
  }
  const row = draw.canvas(112, 28);
  const context = row.getContext("2d");
  const found = await Promise.all(digits.map((d) => api.digit(...d).then(createImageBitmap)));
  found.forEach((picture, i) => context.drawImage(picture, 28 * i, 0));
  const blob = await new Promise((done) => row.toBlob(done, "image/png"));
  const file = new File([blob], "digits.png", { type: "image/png" });
  await choose({ kind: "digits", name: `Digits ${digits.map((d) => d[0]).join(" ")}`, file, task: "guess", raters: null });
}

// --- downloads and links -------------------------------------------------------------------------

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const stem = () => state.source.file.name.replace(/\.(nii\.gz|[^.]+)$/, "") || "answers";

async function download(form) {
  const pane = panes[state.active];
  if (form === "png") {
    const scale = Math.max(1, Math.round(1024 / pane.image.width));
    const target = draw.canvas(pane.image.width * scale, pane.image.height * scale);
    paint(pane, target.getContext("2d"), target.width, target.height, { scale, left: 0, top: 0 });
    save(await new Promise((done) => target.toBlob(done, "image/png")), `${stem()}-answer-${state.chosen + 1}.png`);
  } else if (form === "json") {
    const answers = pane.ranked.modes.map((mode, i) => ({
      rank: i + 1, prob: mode.prob, spread: mode.spread, code: pane.proposal.answers[mode.representative].code,
      members: mode.members.map((k) => ({ prob: pane.proposal.answers[k].prob, code: pane.proposal.answers[k].code })),
      mask: pane.proposal.answers[mode.representative].mask,
    }));
    const content = { image: state.source.name, model: pane.model.name, by: state.by, cut: Number($("cut").value),
      coverage: pane.limit === null ? null : Number(state.coverage), answers, rest: pane.ranked.rest };
    save(new Blob([JSON.stringify(content, null, 2)], { type: "application/json" }), `${stem()}.json`);
  } else {
    const promised = pane.limit !== null;
    busy(true);
    try {
      const blob = await api.exported(state.source.file, {
        model: pane.model.name, format: form, slice: state.slice, k: MAX_MODES, by: state.by,
        cut: promised || state.by === "code" ? null : cutOf(pane), coverage: promised ? state.coverage : null,
      });
      save(blob, `${stem()}${form === "nifti" ? ".nii.gz" : "-seg.dcm"}`);
    } catch (error) {
      say(error.message);
    } finally {
      busy(false);
    }
  }
}
document.querySelectorAll("[data-download]").forEach((b) => b.addEventListener("click", () => download(b.dataset.download)));

function keepLink() {
  const view = new URLSearchParams();
  const { kind, id } = state.source;
  if (kind === "example") view.set("example", id);
  if (kind === "digits") view.set("digits", digits.map((d) => d.join("-")).join(","));
  view.set("model", state.model);
  if (state.compare && state.other) view.set("compare", state.other);
  view.set("cut", Number(state.cut).toFixed(2));
  if (state.by !== "mode") view.set("by", state.by);
  if (state.coverage) view.set("coverage", state.coverage);
  if (state.layer !== "answer") view.set("layer", state.layer);
  if (state.style !== "outline") view.set("style", state.style);
  if (state.raters) view.set("raters", "1");
  if (state.chosen) view.set("answer", state.chosen + 1);
  history.replaceState(null, "", `#${view}`);
}

$("link").addEventListener("click", async () => {
  const said = state.source.kind === "file" ? "Link copied; the image itself is not in it." : "Link copied.";
  try {
    await navigator.clipboard.writeText(location.href);
    say(said);
  } catch {
    say(`Copy the address of this page: ${location.href}`);
  }
});

// --- start ---------------------------------------------------------------------------------------

async function start() {
  const view = new URLSearchParams(location.hash.slice(1));
  [state.models, state.examples] = await Promise.all([api.models(), api.examples()]);
  state.model = modelOf(view.get("model"))?.name || state.models[0].name;
  state.other = modelOf(view.get("compare"))?.name || null;
  state.compare = Boolean(state.other);
  listModels();
  listExamples();
  if (ofTask("guess").length) listSlots();
  if (Number(view.get("cut")) > 0) state.cut = Number(view.get("cut"));
  if (view.get("by") === "code") state.by = "code";
  state.coverage = view.get("coverage") || "";
  if (["mean", "disagreement", "none"].includes(view.get("layer"))) state.layer = view.get("layer");
  if (view.get("style") === "fill") state.style = "fill";
  state.raters = view.has("raters");
  const answerAt = Math.max(0, (Number(view.get("answer")) || 1) - 1);
  const { task } = modelOf(state.model);
  if (/^(\d-\d+,){3}\d-\d+$/.test(view.get("digits") || "")) {
    view.get("digits").split(",").forEach((d, i) => { digits[i] = d.split("-").map(Number); });
    await listSlots();
    await compose(-1);
  } else {
    const first = state.examples.find((e) => e.id === view.get("example"))
      || state.examples.find((e) => e.task === task) || state.examples[0];
    if (!first) { say("There are no examples for this model; drop an image."); return; }
    await choose(exampleSource(first));
  }
  if (answerAt) { state.chosen = answerAt; show(); }
  document.body.dataset.ready = "true";
}

start().catch((error) => say(error.message));
