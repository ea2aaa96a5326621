// How near the image is, and where.

import { $ } from "../dom.js";
import { readNumbers, writeNumbers } from "../numbers.js";
import { zoom } from "../stage.js";

const NUMBERS = { zoom: [1, 1, 40], x: [0, -1e4, 1e4], y: [0, -1e4, 1e4] };
const [nearer, farther, fit] = [1.4, 1 / 1.4, 0].map((factor) => () => zoom(factor));
for (const [id, act] of [["zoom-in", nearer], ["zoom-out", farther], ["zoom-fit", fit]]) $(id).addEventListener("click", act);

export default {
  keys: { "+": nearer, "=": nearer, "-": farther, 0: fit },
  help: { "+ − 0": "zoom, fit", "Shift ← …": "move the image that has the focus" },
  write: (view) => writeNumbers(view, NUMBERS),
  after: (view) => readNumbers(view, NUMBERS),
};
