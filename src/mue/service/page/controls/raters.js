// The raters' own masks over the image.

import { $ } from "../dom.js";
import { repaint, state } from "../state.js";

const toggle = () => state.source.masks && repaint({ raters: !state.raters });
$("raters").addEventListener("click", toggle);

export default {
  keys: { r: toggle },
  help: { R: "the raters' own masks" },
  show() {
    const known = Boolean(state.source.masks);
    $("raters").disabled = !known;
    $("raters").title = known ? "The raters' own masks (R)" : "No raters' masks are known for this image";
    $("raters").setAttribute("aria-pressed", String(state.raters && known));
  },
  write: (view) => state.raters && view.set("raters", "1"),
  read: (view) => ({ raters: view.has("raters") }),
};
