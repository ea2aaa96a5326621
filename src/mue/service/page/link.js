// The view in the address of the page, without the image of a visitor.

import { CONTROLS } from "./controls.js";
import { composed } from "./digits.js";
import { $, say } from "./dom.js";
import { state } from "./state.js";

function link() {
  const view = new URLSearchParams();
  const { kind, id } = state.source;
  if (kind === "example") view.set("example", id);
  if (kind === "digits") view.set("digits", composed());
  if (kind === "files") view.set("upload", "1");
  for (const control of CONTROLS) control.write?.(view);
  return `#${view}`;
}

let later = 0;
export function keepLink() { // browsers refuse an address that changes with every step of a drag
  clearTimeout(later);
  later = setTimeout(() => history.replaceState(null, "", link()), 100);
}

// What a link says: the image, what has to be known before it is answered, and what after.
export function readLink(text) {
  const view = new URLSearchParams(text);
  const before = {};
  for (const control of CONTROLS) Object.assign(before, control.read?.(view, before));
  const after = Object.assign({}, ...CONTROLS.map((control) => control.after?.(view, before)));
  const digits = /^(\d-\d+,){3}\d-\d+$/.test(view.get("digits") || "") ? view.get("digits") : null;
  const slice = Math.max(0, Math.floor(Number(view.get("slice")) || 0));
  const { model, other, compare, cut = null, coverage } = before;
  const upload = view.has("upload") ? { slice, asked: { model, other, compare, cut, coverage }, view: after } : null;
  return { before, after: upload ? {} : after, digits, example: view.get("example"), upload };
}

$("link").addEventListener("click", async () => {
  history.replaceState(null, "", link());
  const said = state.source.kind === "files" ? "Link copied. It has the view, not the image: whoever opens it is asked for the file." : "Link copied.";
  try {
    await navigator.clipboard.writeText(location.href);
    say(said);
  } catch {
    say(`Copy the address of this page: ${location.href}`);
  }
});
