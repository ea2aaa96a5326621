// Which slice of a volume is shown.

import { answer, coming, sliceOf } from "../answers.js";
import { $ } from "../dom.js";
import { panes, repaint, state } from "../state.js";

let redo = 0;
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
$("slice").addEventListener("input", (e) => toSlice(Number(e.target.value)));

export default {
  keys: { "[": () => bySlices(-1), "]": () => bySlices(1) },
  help: { "[ ]": "slice before, and after" },
  show({ image }) {
    const slice = sliceOf(image);
    $("slice-field").hidden = image.slices < 2;
    $("slice").max = image.slices - 1;
    $("slice").value = slice;
    $("slice-value").textContent = `${slice + 1} / ${image.slices}`;
  },
  write: (view) => panes[0].image.slices > 1 && view.set("slice", sliceOf(panes[0].image) + 1), // read with its file
};
