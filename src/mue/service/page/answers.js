// The answers to an image: asked of the service, ranked as the controls say.

import * as api from "./api.js";
import * as draw from "./canvas.js";
import { $, busy, fail, hush } from "./dom.js";
import { rank } from "./modes.js";
import { modelOf, ofTask, panes, state, update } from "./state.js";

export const MAX = { mode: 12, code: 64 }; // how many are listed

// Models for images of a task: one that was trained on them, and another to compare it with,
// unless that was asked for.
function suited(task, model = coming().model, asked = null) {
  const fitting = ofTask(task);
  if (fitting.length && modelOf(model).task !== task) model = fitting[0].name;
  const others = state.models.filter((m) => m.name !== model);
  const other = others.find((m) => m.name === asked)
    || others.find((m) => m.name === coming().other && m.task === modelOf(model).task)
    || others.find((m) => m.task === modelOf(model).task) || others[0];
  return { model, other: other?.name || null };
}

async function proposal(name, source, slice, signal) {
  const found = await api.propose(source.files, { model: name, slice }, signal);
  const masks = await Promise.all(found.answers.map((a) => draw.grey(a.mask.png)));
  const model = modelOf(name);
  const labels = model.answers === "labels";
  const maps = draw.expected(masks, found.answers.map((a) => a.prob), labels);
  return { source, model, proposal: found, masks, labels, maps, image: draw.pixels(found.image), paths: [], fills: [] };
}

let asking = null;
let waiting = {}; // what changes with the answer: until then the page shows what it has
export const coming = () => ({ ...state, ...waiting });

export async function answer(changes = {}) {
  Object.assign(waiting, changes);
  const { source, slice, model, other, compare } = coming();
  if (!source) { Object.assign(state, waiting); waiting = {}; return; }
  asking?.abort();
  const request = new AbortController();
  asking = request;
  busy(true);
  const began = performance.now();
  try {
    const names = compare && other ? [model, other] : [model];
    source.masks ??= source.raters && await Promise.all(source.raters.map((r) => draw.grey(r.png)));
    const found = await Promise.all(names.map((name) => proposal(name, source, slice, request.signal)));
    if (asking !== request) return;
    panes.splice(0, panes.length, ...found);
    hush("error");
    const { cut, range } = coming();
    const [{ image, model: first }] = found;
    const changed = {
      active: Math.min(state.active, found.length - 1), ...waiting, hovered: null, member: null, ms: performance.now() - began,
      cut: cut ?? first.cut, range: range ?? image.window, slice: image.slices > 1 ? image.slice : null,
    };
    waiting = {};
    update(changed);
  } catch (error) {
    if (asking !== request) return;
    waiting = {};
    fail(error);
    update(); // what was chosen in vain
    if (!panes.length) $("empty").textContent = "No image is answered yet: choose an example, or drop an image.";
  } finally {
    if (asking === request) { asking = null; busy(false); }
  }
}

export function choose(source, changes = {}) {
  const models = source.task ? suited(source.task, changes.model, changes.other) : {};
  const changed = models.model && models.model !== coming().model;
  return answer({
    source, slice: null, active: 0, zoom: 1, x: 0, y: 0, range: null, window: 1, level: 1, chosen: 0, opened: new Set(),
    ...changes, ...models, ...(changed ? { cut: null, coverage: "" } : {}),
  });
}

export function chooseModel(name) {
  const { task } = modelOf(name);
  const view = { cut: null, coverage: "", chosen: 0, opened: new Set(), ...suited(task, name) };
  const other = state.examples.find((e) => e.task === task);
  const now = coming();
  if (task === modelOf(now.model).task || now.source?.kind === "files" || !other) return answer(view);
  return choose(exampleSource(other), view);
}

export function toggleCompare() {
  if (state.models.length < 2) return null;
  const { model, compare } = coming();
  return answer({ ...suited(modelOf(model).task), compare: !compare });
}

export function exampleSource(example) {
  const bytes = Uint8Array.from(atob(example.image), (c) => c.charCodeAt(0));
  const file = new File([bytes], `${example.id}.png`, { type: "image/png" });
  return { ...example, kind: "example", files: [file] };
}

// The slice that is shown, or will be when the service has answered.
export const sliceOf = (image) => state.wanted ?? (coming().source === state.source ? coming().slice : null) ?? image.slice;

// The cut of a model: the slider's, unless it measures other distances than the first one does.
export const cutOf = (pane) => (pane.model.task === panes[0].model.task ? state.cut : pane.model.cut);

export function rankAll() {
  state.active = Math.min(state.active, panes.length - 1);
  for (const pane of panes) {
    const at = state.by === "mode" ? pane.model.coverage.findIndex((c) => String(c) === state.coverage) : -1;
    pane.limit = at < 0 ? null : pane.model.limits[at];
    pane.cut = at < 0 ? cutOf(pane) : pane.model.cut;
    pane.ranked = rank(pane.proposal, { by: state.by, cut: pane.cut, limit: pane.limit, max: MAX[state.by] });
  }
  state.chosen = Math.min(state.chosen, panes[state.active].ranked.modes.length - 1);
}
