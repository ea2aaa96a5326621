// The image with what is laid over it: painting, zoom and pan.

import { sliceOf } from "./answers.js";
import * as draw from "./canvas.js";
import { $, element, percent } from "./dom.js";
import { activePane, drawn, panes, repaint, state, update } from "./state.js";

const LAYERS = {
  mean: ["mean of all answers", "0 %", "100 %"],
  disagreement: ["disagreement", "all agree", "split"],
  none: ["image alone"],
};
const isWide = (pane) => pane.image.width > 2 * pane.image.height;

// The grey values that are black and white: the same in every slice of a volume.
export function windowOf() {
  const [low, high] = state.range;
  const width = Math.max((high - low) * state.window, 1e-6);
  const centre = low + ((high - low) / 2) * state.level;
  return [centre - width / 2, centre + width / 2];
}

function picture(pane) {
  const [low, high] = windowOf();
  const key = `${low} ${high}`;
  if (pane.picture?.key !== key) pane.picture = { key, canvas: draw.windowed(pane.image, low, high) };
  return pane.picture.canvas;
}

const path = (pane, k) => (pane.paths[k] ??= draw.outline(pane.masks[k], pane.labels));

function fill(pane, k, hex) {
  if (pane.fills[k]?.hex !== hex) pane.fills[k] = { hex, canvas: draw.filled(pane.masks[k], hex, pane.labels) };
  return pane.fills[k].canvas;
}

function place(pane, width, height) {
  const fit = Math.min(width / pane.image.width, height / pane.image.height);
  const scale = fit * state.zoom;
  return {
    scale,
    left: width / 2 - (pane.image.width * scale) / 2 + state.x * scale,
    top: height / 2 - (pane.image.height * scale) / 2 + state.y * scale,
  };
}

const shownMode = (pane) => {
  const at = state.hovered !== null && pane === activePane() ? state.hovered : state.chosen;
  return Math.min(at, pane.ranked.modes.length - 1);
};

function paint(pane, context, width, height, { scale, left, top }) {
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, width, height);
  context.setTransform(scale, 0, 0, scale, left, top);
  context.imageSmoothingEnabled = scale < 8 && pane.image.width > 120;
  context.drawImage(picture(pane), 0, 0);
  const at = shownMode(pane);
  const k = pane === activePane() && state.member !== null ? state.member : pane.ranked.modes[at].representative;
  const hex = draw.colour(at);
  context.globalAlpha = state.opacity[drawn()];
  if (state.layer === "mean" || state.layer === "disagreement") {
    pane[state.layer] ??= draw.heat(pane.maps[state.layer], pane.image.width, pane.image.height);
    context.drawImage(pane[state.layer], 0, 0);
  } else if (state.layer === "answer") {
    if (state.style === "fill") {
      context.imageSmoothingEnabled = false;
      context.drawImage(fill(pane, k, hex), 0, 0);
      context.globalAlpha = 1;
    }
    context.lineJoin = "round";
    for (const [line, colour] of [[4, "rgb(0 0 0 / 45%)"], [2, hex]]) {
      context.lineWidth = (line * (devicePixelRatio || 1)) / scale;
      context.strokeStyle = colour;
      context.stroke(path(pane, k));
    }
  }
  context.globalAlpha = 1;
  if (showsRaters(pane)) {
    const unit = (devicePixelRatio || 1) / scale;
    state.source.paths ??= state.source.masks.map((m) => draw.outline(m));
    for (const [line, colour] of [[3, "rgb(0 0 0 / 55%)"], [1.5, "#ffffff"]]) {
      context.setLineDash([5 * unit, 4 * unit]);
      context.lineWidth = line * unit;
      context.strokeStyle = colour;
      for (const each of state.source.paths) context.stroke(each);
    }
    context.setLineDash([]);
  }
}

const showsRaters = (pane) => state.raters && state.source.masks?.[0].width === pane.image.width;

function describe(pane, at = shownMode(pane)) {
  const mode = pane.ranked.modes[at];
  if (state.layer !== "answer") return LAYERS[state.layer][0];
  const k = pane === activePane() && state.member !== null ? state.member : mode.representative;
  const empty = draw.area(pane.masks[k], pane.labels) ? "" : ", empty mask";
  return `answer ${at + 1}, ${percent(mode.prob)}${empty}`;
}

export function paintAll() {
  panes.forEach((pane, i) => {
    if (!pane.canvas) return;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [pane.canvas.clientWidth, pane.canvas.clientHeight].map((n) => Math.round(n * ratio));
    if (!width) return;
    if (pane.canvas.width !== width || pane.canvas.height !== height) Object.assign(pane.canvas, { width, height });
    paint(pane, pane.canvas.getContext("2d"), width, height, place(pane, width, height));
    const what = describe(pane);
    pane.caption.replaceChildren(element("b", {}, pane.model.name), ` ${what}`);
    showLegend(pane);
    pane.canvas.setAttribute("aria-label", `${state.source.name}, ${pane.model.name}: ${what}`);
    pane.canvas.classList.toggle("zoomed", state.zoom > 1);
    pane.canvas.classList.toggle("active", panes.length > 1 && i === state.active);
  });
}

// For screen readers: what was chosen by a key, the ranking it is from, and the slice.
export function announce() {
  const pane = activePane();
  const { ranked: { modes, rest }, image: { slices } } = pane;
  const said = [
    panes.length > 1 && pane.model.name, describe(pane, Math.min(state.chosen, modes.length - 1)),
    `${modes.length} listed`, `rest ${percent(rest)}`, slices > 1 && `slice ${sliceOf(pane.image) + 1} of ${slices}`,
  ].filter(Boolean).join(", ");
  if ($("said").textContent !== said) $("said").textContent = said;
}

function showLegend(pane) {
  const [, low, high] = LAYERS[state.layer] || [];
  const masks = state.source.masks || [];
  const empty = masks.filter((mask) => !draw.area(mask)).length;
  const known = `${masks.length} ${state.source.task === "guess" ? "known answers" : "raters"}${empty ? `, ${empty} with an empty mask` : ""}`;
  pane.legend.replaceChildren(
    ...(low ? [element("span", {}, low, element("i", { class: "heat" }), high)] : []),
    ...(showsRaters(pane) ? [element("span", {}, element("i", { class: "dash" }), known)] : []),
  );
}

const sizes = new ResizeObserver(() => requestAnimationFrame(() => repaint()));

// Canvases for the panes, unless they have theirs.
export function buildPanes() {
  if (panes.every((pane) => pane.canvas)) return;
  sizes.disconnect();
  $("panes").replaceChildren(...panes.map((pane, i) => {
    pane.canvas = element("canvas", { role: "img", tabindex: "0", class: isWide(pane) ? "wide" : "" });
    pane.strip = element("div", { class: "strip" });
    pane.caption = element("figcaption", {});
    pane.legend = element("div", { class: "legend", "aria-hidden": "true" });
    const view = element("div", { class: "view" }, pane.canvas, pane.caption, pane.legend);
    view.addEventListener("pointerdown", () => activate(i), { capture: true });
    pane.canvas.addEventListener("focus", () => activate(i));
    listen(pane.canvas);
    sizes.observe(pane.canvas);
    return element("figure", { class: "pane" }, view, pane.strip);
  }));
  $("panes").classList.toggle("two", panes.length > 1);
}

function activate(i) {
  if (state.active !== i && i < panes.length) update({ active: i, hovered: null });
}

// A small picture of an answer, twice as many pixels as it is wide on the page.
export function thumbnail(pane, k, hex, size) {
  const [w, h] = isWide(pane) ? [2 * size, Math.round((2 * size * pane.image.height) / pane.image.width)] : [size, size];
  const target = draw.canvas(2 * w, 2 * h);
  const context = target.getContext("2d");
  const scale = Math.min((2 * w) / pane.image.width, (2 * h) / pane.image.height);
  context.setTransform(scale, 0, 0, scale, (2 * w - pane.image.width * scale) / 2, (2 * h - pane.image.height * scale) / 2);
  context.drawImage(picture(pane), 0, 0);
  context.globalAlpha = 0.5;
  context.imageSmoothingEnabled = false;
  context.drawImage(fill(pane, k, hex), 0, 0);
  context.globalAlpha = 1;
  context.lineWidth = 2.5 / scale;
  context.strokeStyle = hex;
  context.stroke(path(pane, k));
  target.style.width = `${w}px`;
  target.style.height = `${h}px`;
  target.setAttribute("aria-hidden", "true");
  return target;
}

// The part of an image that is in view, with what is laid over it, some 1024 pixels wide.
function view(pane) {
  const { clientWidth, clientHeight } = pane.canvas;
  const { scale, left, top } = place(pane, clientWidth, clientHeight);
  const [x0, y0] = [Math.max(0, -left / scale), Math.max(0, -top / scale)];
  const x1 = Math.min(pane.image.width, (clientWidth - left) / scale);
  const y1 = Math.min(pane.image.height, (clientHeight - top) / scale);
  if (x1 <= x0 || y1 <= y0) throw new Error("no part of the image is in view; press 0 to fit it");
  const factor = Math.max(1, Math.round(1024 / (x1 - x0)));
  const target = draw.canvas(Math.round((x1 - x0) * factor), Math.round((y1 - y0) * factor));
  paint(pane, target.getContext("2d"), target.width, target.height, { scale: factor, left: -x0 * factor, top: -y0 * factor });
  return target;
}

// What is in view as a picture, of two models side by side.
export function rendered() {
  const views = panes.map(view);
  const width = views.reduce((sum, each) => sum + each.width, 0);
  const target = draw.canvas(width, Math.max(...views.map((each) => each.height)));
  let left = 0;
  for (const each of views) {
    target.getContext("2d").drawImage(each, left, 0);
    left += each.width;
  }
  return new Promise((done) => target.toBlob(done, "image/png"));
}

// Zoom so that what is under a point of a canvas stays there; without one, around the middle.
export function zoom(factor, event = null) {
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
  repaint();
}

function pan(pane, dx, dy) {
  const { scale } = place(pane, pane.canvas.clientWidth, pane.canvas.clientHeight);
  state.x += dx / scale;
  state.y += dy / scale;
  repaint();
}

function listen(target) {
  const held = new Map();
  const pane = () => panes.find((p) => p.canvas === target);
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
    } else if (state.zoom > 1) pan(pane(), now[0] - before[0], now[1] - before[1]);
    held.set(event.pointerId, now);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    target.addEventListener(name, (event) => held.delete(event.pointerId));
  }
  target.addEventListener("keydown", (event) => { // shift and arrows: an image is moved without a mouse
    const by = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!by || !event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (state.zoom > 1) pan(pane(), 40 * by[0], 40 * by[1]);
  });
}
