// How answers are ranked: as modes or alone, where the tree is cut, what is promised.

import { $, element, press } from "../dom.js";
import { state, update } from "../state.js";

document.querySelectorAll("[data-by]").forEach((button) => button.addEventListener("click", () =>
  update({ by: button.dataset.by, chosen: 0, opened: new Set() })));
$("cut").addEventListener("input", (e) => update({ cut: Number(e.target.value), opened: new Set() }));
$("coverage").addEventListener("change", (e) => update({ coverage: e.target.value, opened: new Set() }));

export default {
  show(pane) {
    const { model } = pane;
    const promised = pane.limit !== null;
    press("by", state.by);
    $("by-code").textContent = model.samples ? "Samples" : "Codes";
    $("cut").max = model.max_cut;
    $("cut").step = model.max_cut / 100;
    $("cut").value = pane.cut;
    $("cut").disabled = state.by === "code" || promised;
    $("cut-value").textContent = Number(pane.cut).toFixed(2);
    const calibrated = Math.abs(pane.cut - model.cut) < 0.005;
    $("cut-note").textContent = calibrated ? (model.coverage.length ? "calibrated" : "default") : "";
    if ($("coverage").dataset.model !== model.name) {
      $("coverage").dataset.model = model.name;
      $("coverage").replaceChildren(element("option", { value: "" }, model.coverage.length ? "all answers" : "all (not calibrated)"),
        ...model.coverage.map((c) => element("option", { value: c }, `${Math.round(100 * c)} % of raters`)));
    }
    $("coverage").value = promised ? state.coverage : "";
    $("coverage").disabled = !model.coverage.length || state.by === "code";
  },
  write(view) {
    view.set("cut", Number(state.cut).toFixed(2));
    if (state.by !== "mode") view.set("by", state.by);
    if (state.coverage) view.set("coverage", state.coverage);
  },
  read(view) {
    const cut = view.get("cut") && Number(view.get("cut")) >= 0 ? { cut: Number(view.get("cut")) } : {};
    return { by: view.get("by") === "code" ? "code" : "mode", coverage: view.get("coverage") || "", ...cut };
  },
};
