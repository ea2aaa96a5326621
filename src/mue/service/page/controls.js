// The controls of the page: a file each, and its line in this table.
//
// A control may have
//   place        where its element is put, and the element; others are in index.html
//   state        what it adds to the state of the page
//   keys, help   keys with what they do, and how they are listed
//   show(pane)   called whenever the image is painted
//   write(view)  its part of a link
//   read(view, before), after(view, before)  from a link: changes of the state before an image is answered, and after it

import choice from "./controls/choice.js";
import download from "./controls/download.js";
import grey from "./controls/grey.js";
import layer from "./controls/layer.js";
import model from "./controls/model.js";
import opacity from "./controls/opacity.js";
import page from "./controls/page.js";
import ranking from "./controls/ranking.js";
import raters from "./controls/raters.js";
import slice from "./controls/slice.js";
import zoom from "./controls/zoom.js";
import { $, duration, element } from "./dom.js";
import { activePane, panes, state } from "./state.js";

export const CONTROLS = [
  choice,
  layer,
  raters,
  zoom,
  slice,
  model,
  ranking,
  opacity,
  grey,
  download,
  page,
];

const KEYS = Object.assign({}, ...CONTROLS.map((control) => control.keys));
for (const { place, state: own } of CONTROLS) {
  if (place) document.querySelector(place[0]).append(place[1]);
  Object.assign(state, own);
}
$("key-list").replaceChildren(...CONTROLS.flatMap(({ help = {} }) => Object.entries(help).flatMap(([keys, what]) => [
  element("dt", {}, ...keys.split(" ").flatMap((key) => [key === "…" ? key : element("kbd", {}, key), " "])),
  element("dd", {}, what),
])));

function showStatus(pane) {
  const { width, height, spacing, dtype } = pane.image;
  const facts = [`${width} × ${height} px`, spacing && `${spacing.map((s) => Number(s.toFixed(2))).join(" × ")} mm`,
    dtype, `answered in ${duration(state.ms)}`];
  const shown = [element("span", {}, element("b", {}, state.source.name), ` ${state.source.note || ""}`),
    element("span", {}, facts.filter(Boolean).join(" · "))];
  const said = shown.map((part) => part.textContent).join("");
  if ($("status").textContent !== said) $("status").replaceChildren(...shown); // else it is read out again
}

// What a screen reader says of a slider in place of its number.
function describeSliders() {
  for (const slider of document.querySelectorAll("input[type=range]")) {
    const note = slider.id === "cut" ? $("cut-note").textContent : "";
    const value = slider.nextElementSibling.textContent.replace(" / ", " of ");
    slider.setAttribute("aria-valuetext", [value, note].filter(Boolean).join(", "));
  }
}

export function showControls() {
  const pane = activePane();
  for (const part of document.querySelectorAll("[inert]")) part.inert = false; // there is an image
  document.body.dataset.task = pane.model.task;
  for (const control of CONTROLS) control.show?.(pane);
  showStatus(pane);
  describeSliders();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input:not([type=file]), select, textarea, dialog");
  const range = event.target.type === "range"; // it needs the arrows for itself
  const act = KEYS[event.key.toLowerCase()];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || !panes.length) return;
  if (typing && !(range && !event.key.startsWith("Arrow"))) return;
  act();
  event.preventDefault();
});
