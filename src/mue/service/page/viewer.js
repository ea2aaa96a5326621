// The page from its start.

import * as api from "./api.js";
import { choose, exampleSource, rankAll } from "./answers.js";
import { showControls } from "./controls.js";
import { listModels } from "./controls/model.js";
import { listSlots, restoreDigits } from "./digits.js";
import { $, fail, say } from "./dom.js";
import { awaitUpload, listExamples, markExample } from "./images.js";
import { keepLink, readLink } from "./link.js";
import { listModes, listPrior, listStrips } from "./ranking.js";
import { announce, buildPanes, paintAll } from "./stage.js";
import { modelOf, ofTask, onPaint, onShow, state, update } from "./state.js";

for (const listener of [rankAll, buildPanes, listModes, listStrips, listPrior, markExample]) onShow(listener);
for (const listener of [showControls, paintAll, announce, keepLink]) onPaint(listener);

async function start() {
  [state.inputs, state.models, state.examples] = await Promise.all([api.inputs(), api.models(), api.examples()]);
  $("formats").textContent = state.inputs.formats.map((each) => each.name).join(", ");
  const { before, after, digits, example, upload } = readLink(location.hash.slice(1));
  Object.assign(state, before);
  listModels();
  listExamples();
  const hasGame = ofTask("guess").length > 0;
  if (hasGame) listSlots().catch(fail);
  const first = state.examples.find((e) => e.id === example)
    || state.examples.find((e) => e.task === modelOf(state.model).task) || state.examples[0];
  const { other } = before;
  if (digits && hasGame) await restoreDigits(digits, { other });
  else if (first) await choose(exampleSource(first), { other });
  else $("empty").textContent = "There are no examples for this model: drop an image.";
  update(after);
  if (upload) {
    awaitUpload(upload);
    say("This link shows an image that was uploaded: drop the same file to see it.", "hint");
  }
  document.body.dataset.ready = "true";
}

// Another link in the same tab; what the page itself writes into its address is no event.
addEventListener("hashchange", () => { if (location.hash.includes("=")) location.reload(); });

start().catch((error) => {
  $("empty").textContent = "The page could not be filled; reload it to try again.";
  fail(error);
});
