// How opaque the layer is; each kind of layer has its own opacity.

import { $ } from "../dom.js";
import { drawn, repaint, state } from "../state.js";

const USUAL = { ...state.opacity };
const kindOf = ({ layer, style }) => (layer === "answer" ? style : "map");
$("opacity").addEventListener("input", (e) => repaint({ opacity: { ...state.opacity, [drawn()]: e.target.value / 100 } }));

export default {
  show() {
    const opacity = Math.round(100 * state.opacity[drawn()]);
    $("opacity").value = opacity;
    $("opacity").disabled = state.layer === "none";
    $("opacity-value").textContent = `${opacity} %`;
  },
  write(view) {
    if (state.opacity[drawn()] !== USUAL[drawn()]) view.set("opacity", state.opacity[drawn()]);
  },
  read(view, before) {
    const opacity = Number(view.get("opacity") ?? NaN);
    return opacity > 0 && opacity <= 1 ? { opacity: { ...state.opacity, [kindOf(before)]: opacity } } : {};
  },
};
