// What is shown, as files.

import * as api from "../api.js";
import { MAX } from "../answers.js";
import { busy, element, fail } from "../dom.js";
import { entropyOf } from "../modes.js";
import { rendered } from "../stage.js";
import { activePane, state } from "../state.js";

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// The modes as the service and `mue predict --format json` have them (mue.inference.json).
function ranking(pane) {
  const { answers } = pane.proposal;
  const short = (k) => ({ prob: answers[k].prob, code: answers[k].code });
  const { modes, rest } = pane.ranked;
  return {
    image: state.source.name, model: pane.model.name, slices: pane.image.slices, slice: state.slice,
    by: state.by, cut: state.by === "code" ? pane.model.cut : pane.cut,
    coverage: pane.limit === null ? null : Number(state.coverage),
    modes: modes.map((mode, i) => ({
      rank: i + 1, prob: mode.prob, code: answers[mode.representative].code, spread: mode.spread,
      members: mode.members.map(short), mask: answers[mode.representative].mask,
    })),
    rest, entropy: entropyOf(modes),
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
