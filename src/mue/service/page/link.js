// The view in the address of the page, without the image of a visitor.

import { sliceOf } from "./answers.js";
import { composed } from "./digits.js";
import { $, say } from "./dom.js";
import { drawn, modelOf, panes, state } from "./state.js";

const NUMBERS = { window: [0.01, 20], level: [-20, 20], zoom: [1, 40], x: [-1e4, 1e4], y: [-1e4, 1e4] };
const OPACITY = { ...state.opacity };

function link() {
  const view = new URLSearchParams();
  const { kind, id } = state.source;
  if (kind === "example") view.set("example", id);
  if (kind === "digits") view.set("digits", composed());
  if (kind === "files") view.set("upload", "1");
  const { image } = panes[0];
  if (image.slices > 1) view.set("slice", sliceOf(image) + 1);
  view.set("model", state.model);
  if (state.compare && state.other) view.set("compare", state.other);
  if (state.active) view.set("pane", state.active + 1);
  view.set("cut", Number(state.cut).toFixed(2));
  if (state.by !== "mode") view.set("by", state.by);
  if (state.coverage) view.set("coverage", state.coverage);
  if (state.layer !== "answer") view.set("layer", state.layer);
  if (state.style !== "outline") view.set("style", state.style);
  if (state.raters) view.set("raters", "1");
  if (state.chosen) view.set("answer", state.chosen + 1);
  if (state.opacity[drawn()] !== OPACITY[drawn()]) view.set("opacity", state.opacity[drawn()]);
  for (const [name, usual] of Object.entries({ window: 1, level: 1, zoom: 1, x: 0, y: 0 })) {
    if (Math.abs(state[name] - usual) > 0.005) view.set(name, Number(state[name].toFixed(4)));
  }
  return `#${view}`;
}

let later = 0;
export function keepLink() { // browsers refuse an address that changes with every step of a drag
  clearTimeout(later);
  later = setTimeout(() => history.replaceState(null, "", link()), 100);
}

// What a link says: the image, what has to be known before it is answered, and what after.
export function readLink(text) {
  const view = new URLSearchParams(text);
  const before = {
    model: modelOf(view.get("model"))?.name || state.models[0].name,
    other: modelOf(view.get("compare"))?.name || null,
    by: view.get("by") === "code" ? "code" : "mode",
    coverage: view.get("coverage") || "",
    layer: ["mean", "disagreement", "none"].includes(view.get("layer")) ? view.get("layer") : "answer",
    style: view.get("style") === "fill" ? "fill" : "outline",
    raters: view.has("raters"),
  };
  before.compare = Boolean(before.other);
  if (view.get("cut") && Number(view.get("cut")) >= 0) before.cut = Number(view.get("cut"));
  const after = {};
  for (const [name, [low, high]] of Object.entries(NUMBERS)) {
    const value = Number(view.get(name) ?? NaN);
    if (Number.isFinite(value)) after[name] = Math.min(high, Math.max(low, value));
  }
  const opacity = Number(view.get("opacity") ?? NaN);
  const layer = before.layer === "answer" ? before.style : "map";
  if (opacity > 0 && opacity <= 1) before.opacity = { ...state.opacity, [layer]: opacity };
  if (Number(view.get("answer")) > 1) after.chosen = Math.floor(Number(view.get("answer"))) - 1;
  if (before.compare && view.get("pane") === "2") after.active = 1;
  const digits = /^(\d-\d+,){3}\d-\d+$/.test(view.get("digits") || "") ? view.get("digits") : null;
  const slice = Math.max(0, Math.floor(Number(view.get("slice")) || 0));
  const { model, other, compare, cut = null, coverage } = before;
  const upload = view.has("upload") ? { slice, asked: { model, other, compare, cut, coverage }, view: after } : null;
  return { before, after: upload ? {} : after, digits, example: view.get("example"), upload };
}

$("link").addEventListener("click", async () => {
  history.replaceState(null, "", link());
  const said = state.source.kind === "files" ? "Link copied. It has the view, not the image: whoever opens it is asked for the file." : "Link copied.";
  try {
    await navigator.clipboard.writeText(location.href);
    say(said);
  } catch {
    say(`Copy the address of this page: ${location.href}`);
  }
});
