// The corner of the guessing game: four digits that a visitor composes.

import * as api from "./api.js";
import { choose } from "./answers.js";
import * as draw from "./canvas.js";
import { $, element, fail } from "./dom.js";

const HANDS = 12;
const digits = [[1, 0], [2, 1], [3, 2], [4, 3]]; // label, and whose handwriting
const pictures = new Map();

export const composed = () => digits.map((d) => d.join("-")).join(",");

function picture(label, hand) {
  const key = `${label}-${hand}`;
  if (!pictures.has(key)) {
    const found = api.digit(label, hand).then(createImageBitmap);
    found.catch(() => pictures.delete(key)); // so that it is asked for again
    pictures.set(key, found);
  }
  return pictures.get(key);
}

async function showSlot(i) {
  const [label, hand] = digits[i];
  const button = $("slots").children[i].querySelector(".digit");
  button.setAttribute("aria-label", `Place ${i + 1}: digit ${label}, another handwriting`);
  const found = await picture(label, hand);
  if (digits[i][0] === label && digits[i][1] === hand) button.firstChild.getContext("2d").drawImage(found, 0, 0);
}

function slot(i) {
  const change = (label, hand) => () => {
    digits[i] = [(digits[i][0] + label + 10) % 10, (digits[i][1] + hand) % HANDS];
    showSlot(i).then(() => compose()).catch(fail);
  };
  return element("div", { class: "slot" },
    element("button", { "aria-label": `Place ${i + 1}: next digit`, onclick: change(1, 0) }, "▴"),
    element("button", { class: "digit", title: "Another handwriting", onclick: change(0, 1) }, draw.canvas(28, 28)),
    element("button", { "aria-label": `Place ${i + 1}: digit before`, onclick: change(-1, 0) }, "▾"));
}

export async function listSlots() {
  $("composer").hidden = false;
  $("slots").replaceChildren(...digits.map((_, i) => slot(i)));
  await Promise.all(digits.map((_, i) => showSlot(i)));
}

export async function compose(changes = {}) {
  const row = draw.canvas(112, 28);
  const context = row.getContext("2d");
  const asked = composed();
  const found = await Promise.all(digits.map((d) => picture(...d)));
  if (asked !== composed()) return; // another digit was chosen meanwhile, and is composed after this
  found.forEach((each, i) => context.drawImage(each, 28 * i, 0));
  const blob = await new Promise((done) => row.toBlob(done, "image/png"));
  const files = [new File([blob], "digits.png", { type: "image/png" })];
  await choose({ kind: "digits", name: `Digits ${digits.map((d) => d[0]).join(" ")}`, files, task: "guess", raters: null }, changes);
}

export async function restoreDigits(text, changes) {
  text.split(",").forEach((d, i) => {
    const [label, hand] = d.split("-").map(Number);
    digits[i] = [label % 10, hand % HANDS];
  });
  await Promise.all(digits.map((_, i) => showSlot(i)));
  await compose(changes);
}
