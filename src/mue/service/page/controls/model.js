// The model, and another one beside it.

import { answer, chooseModel, toggleCompare } from "../answers.js";
import { $, element } from "../dom.js";
import { modelOf, state } from "../state.js";

$("model").addEventListener("change", (e) => chooseModel(e.target.value));
$("other").addEventListener("change", (e) => answer({ other: e.target.value }));
$("compare").addEventListener("click", toggleCompare);

export function listModels() {
  for (const id of ["model", "other"]) {
    $(id).replaceChildren(...state.models.map((m) => element("option", { value: m.name }, m.name)));
  }
  $("compare").hidden = state.models.length < 2;
}

export default {
  keys: { c: toggleCompare },
  help: { C: "compare two models" },
  show() {
    $("model").value = state.model;
    if (state.other) $("other").value = state.other;
    $("other-field").hidden = !state.compare;
    $("compare").setAttribute("aria-pressed", String(state.compare));
  },
  write(view) {
    view.set("model", state.model);
    if (state.compare && state.other) view.set("compare", state.other);
    if (state.active) view.set("pane", state.active + 1);
  },
  read(view) {
    const model = modelOf(view.get("model"))?.name || state.models[0].name;
    const other = modelOf(view.get("compare"))?.name || null;
    return { model, other, compare: Boolean(other) };
  },
  after: (view, { compare }) => (compare && view.get("pane") === "2" ? { active: 1 } : {}),
};
