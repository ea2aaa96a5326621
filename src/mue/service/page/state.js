// What is shown, and who is told when it changes.

export const state = {
  models: [], examples: [], inputs: { formats: [], bytes: Infinity }, // as the service describes them
  model: null, other: null, compare: false,
  source: null, // { kind: "example" | "digits" | "files", id, name, note, files, task, raters }
  slice: null, wanted: null, // which is shown, and which is not asked for yet
  by: "mode", cut: null, coverage: "",
  layer: "answer", style: "outline", raters: false,
  opacity: { outline: 1, fill: 0.5, map: 0.6 },
  range: null, window: 1, level: 1, // black and white of the slice that came first; shares of them
  chosen: 0, hovered: null, member: null, opened: new Set(), active: 0,
  zoom: 1, x: 0, y: 0,
};
export const panes = []; // { model, proposal, image, masks, maps, ranked, … } one, or two to compare

export const modelOf = (name) => state.models.find((m) => m.name === name);
export const ofTask = (task) => state.models.filter((m) => m.task === task);
export const activePane = () => panes[state.active];
export const drawn = () => (state.layer === "answer" ? state.style : "map"); // what has an opacity

const listeners = { show: [], paint: [] };
export const onShow = (listener) => listeners.show.push(listener);
export const onPaint = (listener) => listeners.paint.push(listener);

// Everything, or where neither ranking nor thumbnails change, the image alone.
export function update(changes = {}) {
  Object.assign(state, changes);
  if (!panes.length) return;
  for (const listener of listeners.show) listener();
  repaint();
}

export function repaint(changes = {}) {
  Object.assign(state, changes);
  if (panes.length) for (const listener of listeners.paint) listener();
}
