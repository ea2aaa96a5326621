// Buttons, sliders and keys.

import { answer, chooseModel, coming, sliceOf, toggleCompare } from "./answers.js";
import { $, duration, element, hush, rounded } from "./dom.js";
import { showNumber, step } from "./ranking.js";
import { windowOf, zoom } from "./stage.js";
import { activePane, drawn, panes, repaint, state, update } from "./state.js";

// Width and centre in Hounsfield units.
const WINDOWS = { lung: [1500, -600], "soft tissue": [400, 50], bone: [1800, 400] };
const LAYERS = { a: "answer", m: "mean", d: "disagreement", n: "none" };

export function listModels() {
  for (const id of ["model", "other"]) {
    $(id).replaceChildren(...state.models.map((m) => element("option", { value: m.name }, m.name)));
  }
  $("compare").hidden = state.models.length < 2;
}

const press = (name, value) => document.querySelectorAll(`[data-${name}]`).forEach((button) =>
  button.setAttribute("aria-pressed", String(button.dataset[name] === value)));

function showRanking(pane) {
  const { model } = pane;
  const promised = pane.limit !== null;
  $("by-code").textContent = model.samples ? "Samples" : "Codes";
  $("cut").max = model.max_cut;
  $("cut").step = model.max_cut / 100;
  $("cut").value = pane.cut;
  $("cut").disabled = state.by === "code" || promised;
  $("cut-value").textContent = Number(pane.cut).toFixed(2);
  const calibrated = Math.abs(pane.cut - model.cut) < 0.005;
  $("cut-note").textContent = calibrated ? (model.coverage.length ? "calibrated" : "default") : "";
  if ($("coverage").dataset.model !== model.name) {
    $("coverage").dataset.model = model.name;
    $("coverage").replaceChildren(element("option", { value: "" }, model.coverage.length ? "all answers" : "all (not calibrated)"),
      ...model.coverage.map((c) => element("option", { value: c }, `${Math.round(100 * c)} % of raters`)));
  }
  $("coverage").value = promised ? state.coverage : "";
  $("coverage").disabled = !model.coverage.length || state.by === "code";
}

function showImage(pane) {
  const { slices, width, height, spacing, dtype, formats } = pane.image;
  const [least, most] = state.range;
  $("slice-field").hidden = slices < 2;
  $("slice").max = slices - 1;
  showSlice(sliceOf(pane.image), slices);
  const opacity = Math.round(100 * state.opacity[drawn()]);
  $("opacity").value = opacity;
  $("opacity").disabled = state.layer === "none";
  $("opacity-value").textContent = `${opacity} %`;
  const [low, high] = windowOf();
  $("window").value = 100 * state.window;
  $("level").value = 100 * state.level;
  $("window-value").textContent = rounded(high - low, most - least);
  $("level-value").textContent = rounded((high + low) / 2, most - least);
  $("preset-field").hidden = least > -100; // Hounsfield units
  const preset = Object.entries(WINDOWS).find(([, [w, c]]) => Math.abs(high - low - w) < 1 && Math.abs((high + low) / 2 - c) < 1);
  $("preset").value = preset?.[0] || (state.window === 1 && state.level === 1 ? "full" : "own");
  const facts = [`${width} × ${height} px`, spacing && `${spacing.map((s) => Number(s.toFixed(2))).join(" × ")} mm`,
    dtype, `answered in ${duration(state.ms)}`];
  const shown = [element("span", {}, element("b", {}, state.source.name), ` ${state.source.note || ""}`),
    element("span", {}, facts.filter(Boolean).join(" · "))];
  const said = shown.map((part) => part.textContent).join("");
  if ($("status").textContent !== said) $("status").replaceChildren(...shown); // else it is read out again
  for (const form of ["nifti", "dicom-seg"]) document.querySelector(`[data-download=${form}]`).hidden = !formats.includes(form);
}

// What a screen reader says of a slider in place of its number.
function describeSliders() {
  for (const slider of document.querySelectorAll("input[type=range]")) {
    const note = slider.id === "cut" ? $("cut-note").textContent : "";
    const value = slider.nextElementSibling.textContent.replace(" / ", " of ");
    slider.setAttribute("aria-valuetext", [value, note].filter(Boolean).join(", "));
  }
}

export function showControls() {
  const pane = activePane();
  for (const part of document.querySelectorAll("[inert]")) part.inert = false; // there is an image
  document.body.dataset.task = pane.model.task;
  press("layer", state.layer); press("style", state.style); press("by", state.by);
  $("model").value = state.model;
  if (state.other) $("other").value = state.other;
  $("other-field").hidden = !state.compare;
  $("compare").setAttribute("aria-pressed", String(state.compare));
  $("raters").disabled = !state.source.masks;
  $("raters").title = state.source.masks ? "The raters' own masks (R)" : "No raters' masks are known for this image";
  $("raters").setAttribute("aria-pressed", String(state.raters && Boolean(state.source.masks)));
  showRanking(pane);
  showImage(pane);
  describeSliders();
}

let redo = 0;
function showSlice(slice, slices) {
  $("slice").value = slice;
  $("slice-value").textContent = `${slice + 1} / ${slices}`;
}
function toSlice(value) {
  const { source, image: { slices } } = panes[0];
  if (slices < 2 || coming().source !== source) return; // another image was chosen
  const slice = Math.min(slices - 1, Math.max(0, value));
  if (slice === sliceOf(panes[0].image)) return;
  clearTimeout(redo);
  repaint({ wanted: slice });
  redo = setTimeout(() => {
    state.wanted = null;
    if (coming().source === source) answer({ slice });
  }, 120);
}
const bySlices = (count) => toSlice(sliceOf(panes[0].image) + count);

document.querySelectorAll("[data-layer]").forEach((button) =>
  button.addEventListener("click", () => repaint({ layer: button.dataset.layer })));
const showAs = (style) => repaint({ style, layer: "answer" });
document.querySelectorAll("[data-style]").forEach((button) =>
  button.addEventListener("click", () => showAs(button.dataset.style)));
document.querySelectorAll("[data-by]").forEach((button) => button.addEventListener("click", () =>
  update({ by: button.dataset.by, chosen: 0, opened: new Set() })));
$("raters").addEventListener("click", () => repaint({ raters: !state.raters }));
$("opacity").addEventListener("input", (e) => repaint({ opacity: { ...state.opacity, [drawn()]: e.target.value / 100 } }));
for (const name of ["window", "level"]) {
  $(name).addEventListener("input", (e) => repaint({ [name]: e.target.value / 100 }));
  $(name).addEventListener("change", () => update());
}
$("preset").addEventListener("change", (event) => {
  const [low, high] = state.range;
  const [width, centre] = WINDOWS[event.target.value] || [high - low, (low + high) / 2];
  update({ window: width / (high - low), level: (centre - low) / ((high - low) / 2) });
});
$("cut").addEventListener("input", (e) => update({ cut: Number(e.target.value), opened: new Set() }));
$("coverage").addEventListener("change", (e) => update({ coverage: e.target.value, opened: new Set() }));
$("slice").addEventListener("input", (e) => toSlice(Number(e.target.value)));
$("zoom-in").addEventListener("click", () => zoom(1.4));
$("zoom-out").addEventListener("click", () => zoom(1 / 1.4));
$("zoom-fit").addEventListener("click", () => zoom(0));
$("compare").addEventListener("click", toggleCompare);
$("hush").addEventListener("click", () => hush());
$("help").addEventListener("click", () => $("keys").showModal());
$("theme").addEventListener("click", () => {
  const root = document.documentElement.dataset;
  root.theme = root.theme === "dark" ? "light" : "dark";
  localStorage.setItem("mue-theme", root.theme);
});
$("model").addEventListener("change", (e) => chooseModel(e.target.value));
$("other").addEventListener("change", (e) => answer({ other: e.target.value }));

const KEYS = {
  arrowright: () => step(1), arrowdown: () => step(1), arrowleft: () => step(-1), arrowup: () => step(-1),
  o: () => showAs("outline"), f: () => showAs("fill"), escape: () => hush(),
  r: () => state.source.masks && repaint({ raters: !state.raters }),
  c: () => toggleCompare(), "?": () => $("keys").showModal(),
  "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), 0: () => zoom(0),
  "[": () => bySlices(-1), "]": () => bySlices(1),
};
for (const [key, layer] of Object.entries(LAYERS)) KEYS[key] = () => repaint({ layer });
for (let i = 1; i <= 9; i += 1) KEYS[i] = () => showNumber(i - 1);

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input:not([type=file]), select, textarea, dialog");
  const range = event.target.type === "range"; // it needs the arrows for itself
  const act = KEYS[event.key.toLowerCase()];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || !panes.length) return;
  if (typing && !(range && !event.key.startsWith("Arrow"))) return;
  act();
  event.preventDefault();
});
