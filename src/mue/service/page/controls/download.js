// What is shown, as files.

import * as api from "../api.js";
import { MAX } from "../answers.js";
import { busy, element, fail } from "../dom.js";
import { rendered } from "../stage.js";
import { activePane, state } from "../state.js";

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function ranking(pane) {
  const { answers } = pane.proposal;
  const short = (k) => ({ prob: answers[k].prob, code: answers[k].code });
  return {
    image: state.source.name, slice: state.slice, model: pane.model.name, by: state.by,
    cut: state.by === "code" ? null : pane.cut,
    coverage: pane.limit === null ? null : Number(state.coverage),
    answers: pane.ranked.modes.map((mode, i) => ({
      rank: i + 1, prob: mode.prob, spread: mode.spread, code: answers[mode.representative].code,
      members: mode.members.map(short), mask: answers[mode.representative].mask,
    })),
    rest: pane.ranked.rest,
  };
}

async function download(form) {
  const pane = activePane();
  const name = state.source.files[0].name.replace(/\.(nii\.gz|[^.]+)$/, "") || "image";
  const stem = state.slice === null ? name : `${name}-slice-${state.slice + 1}`;
  const shown = { answer: `answer-${state.chosen + 1}`, none: "image" }[state.layer] || state.layer;
  if (form === "png") save(await rendered(), `${stem}-${shown}.png`);
  else if (form === "json") {
    save(new Blob([JSON.stringify(ranking(pane), null, 2)], { type: "application/json" }), `${stem}-answers.json`);
  } else {
    const promised = pane.limit !== null;
    save(await api.exported(state.source.files, {
      model: pane.model.name, format: form, slice: state.slice, k: MAX[state.by], by: state.by,
      cut: promised || state.by === "code" ? null : pane.cut, coverage: promised ? state.coverage : null,
    }), `${stem}-${form === "nifti" ? "answers.nii.gz" : "seg.dcm"}`);
  }
}

for (const button of document.querySelectorAll("[data-download]")) {
  button.addEventListener("click", async () => {
    busy(true);
    try { await download(button.dataset.download); } catch (error) { fail(error); } finally { busy(false); }
  });
}

export default {
  show({ image: { formats } }) {
    for (const form of ["nifti", "dicom-seg"]) document.querySelector(`[data-download=${form}]`).hidden = !formats.includes(form);
  },
};
