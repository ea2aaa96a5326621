// What is laid over the image, and in which style.

import { press } from "../dom.js";
import { repaint, state } from "../state.js";

const LAYERS = { a: "answer", m: "mean", d: "disagreement", n: "none" };
const showLayer = (layer) => repaint({ layer });
const showAs = (style) => repaint({ style, layer: "answer" });
for (const [name, act] of [["layer", showLayer], ["style", showAs]]) {
  document.querySelectorAll(`[data-${name}]`).forEach((button) =>
    button.addEventListener("click", () => act(button.dataset[name])));
}

export default {
  keys: {
    ...Object.fromEntries(Object.entries(LAYERS).map(([key, layer]) => [key, () => showLayer(layer)])),
    o: () => showAs("outline"), f: () => showAs("fill"),
  },
  help: { "A M D N": "answer, mean, disagreement, image alone", "O F": "outline, fill" },
  show() { press("layer", state.layer); press("style", state.style); },
  write(view) {
    if (state.layer !== "answer") view.set("layer", state.layer);
    if (state.style !== "outline") view.set("style", state.style);
  },
  read: (view) => ({
    layer: Object.values(LAYERS).includes(view.get("layer")) ? view.get("layer") : "answer",
    style: view.get("style") === "fill" ? "fill" : "outline",
  }),
};
