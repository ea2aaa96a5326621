// Which values of the image are black and white.

import { $, rounded } from "../dom.js";
import { readNumbers, writeNumbers } from "../numbers.js";
import { windowOf } from "../stage.js";
import { repaint, state, update } from "../state.js";

const WINDOWS = { lung: [1500, -600], "soft tissue": [400, 50], bone: [1800, 400] }; // width and centre in Hounsfield units
const NUMBERS = { window: [1, 0.01, 20], level: [1, -20, 20] };

for (const name of ["window", "level"]) {
  $(name).addEventListener("input", (e) => repaint({ [name]: e.target.value / 100 }));
  $(name).addEventListener("change", () => update());
}
$("preset").addEventListener("change", (event) => {
  const [low, high] = state.range;
  const [width, centre] = WINDOWS[event.target.value] || [high - low, (low + high) / 2];
  update({ window: width / (high - low), level: (centre - low) / ((high - low) / 2) });
});

export default {
  show() {
    const [least, most] = state.range;
    const [low, high] = windowOf();
    $("window").value = 100 * state.window;
    $("level").value = 100 * state.level;
    $("window-value").textContent = rounded(high - low, most - least);
    $("level-value").textContent = rounded((high + low) / 2, most - least);
    $("preset-field").hidden = least > -100; // Hounsfield units
    const preset = Object.entries(WINDOWS).find(([, [w, c]]) => Math.abs(high - low - w) < 1 && Math.abs((high + low) / 2 - c) < 1);
    $("preset").value = preset?.[0] || (state.window === 1 && state.level === 1 ? "full" : "own");
  },
  write: (view) => writeNumbers(view, NUMBERS),
  after: (view) => readNumbers(view, NUMBERS),
};
