// The ranked answers: modes with their members, the rest, the prior.

import * as draw from "./canvas.js";
import { $, element, percent, refill } from "./dom.js";
import { restOf } from "./modes.js";
import { thumbnail } from "./stage.js";
import { activePane, panes, repaint, state, update } from "./state.js";

const MAX_MEMBERS = 48; // that are listed when a mode is opened
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const nameOf = (pane, k) => {
  const { code } = pane.proposal.answers[k];
  return code < 0 ? `sample ${k + 1}` : `code ${code}`;
};

function sizeOf(pane, k) {
  const count = draw.area(pane.masks[k], pane.labels);
  if (!count) return "empty";
  const { spacing } = pane.image;
  const [area, unit] = spacing ? [count * spacing[0] * spacing[1], "mm²"] : [count, "px"];
  return `${area.toLocaleString("en", { maximumFractionDigits: area < 10 ? 1 : 0 })} ${unit}`;
}

function bar(share, colour = null) {
  const found = element("span", { class: "bar" }, element("i", {}));
  found.firstChild.style.width = `${100 * share}%`;
  if (colour) found.firstChild.style.background = colour;
  return found;
}

const preview = (mode, member = null) => repaint({ hovered: mode, member });
const chooseMode = (i) => update({ chosen: i, hovered: null, member: null, layer: "answer" });

function memberItem(pane, i, k) {
  const { prob } = pane.proposal.answers[k];
  return element("button", {
    class: "member", "data-key": `member-${k}`, "aria-label": `${nameOf(pane, k)}, probability ${percent(prob)}`,
    onmouseenter: () => preview(i, k), onfocus: () => preview(i, k),
    onmouseleave: () => preview(null), onblur: () => preview(null),
  }, thumbnail(pane, k, draw.colour(i), 40), element("small", {}, nameOf(pane, k)), element("small", {}, percent(prob)));
}

function modeItem(pane, mode, i) {
  const count = mode.members.length;
  const about = state.by === "code" ? nameOf(pane, mode.representative)
    : plural(count, pane.model.samples ? "sample" : "code");
  const size = sizeOf(pane, mode.representative);
  const item = element("li", {}, element("button", {
    class: "mode", "data-mode": i, "data-key": `mode-${i}`, "aria-pressed": String(i === state.chosen),
    "aria-label": `Answer ${i + 1}, probability ${percent(mode.prob)}, ${size}`,
    onclick: () => chooseMode(i), onmouseenter: () => preview(i), onmouseleave: () => preview(null),
  }, thumbnail(pane, mode.representative, draw.colour(i), 52),
  element("span", { class: "text" },
    element("span", { class: "line" }, element("kbd", {}, String(i + 1)), element("b", { class: "prob" }, percent(mode.prob)),
      element("small", {}, size)),
    bar(mode.prob, draw.colour(i)), element("small", { class: "about" }, about))));
  if (count < 2) return item;
  const open = state.opened.has(i);
  item.append(element("button", {
    class: "open", "data-key": `open-${i}`, "aria-expanded": String(open), "aria-label": `Members of answer ${i + 1}`,
    onclick: () => { if (open) state.opened.delete(i); else state.opened.add(i); update(); },
  }));
  if (open) {
    const further = count - MAX_MEMBERS;
    item.append(element("div", { class: "members" }, ...mode.members.slice(0, MAX_MEMBERS).map((k) => memberItem(pane, i, k)),
      further > 0 ? element("small", { class: "further" }, `and ${further} more`) : ""));
  }
  return item;
}

export function listModes() {
  const pane = activePane();
  const { modes, rest, hidden, unlisted } = pane.ranked;
  refill($("modes"), ...modes.map((mode, i) => modeItem(pane, mode, i)));
  const parts = [hidden && plural(hidden, "further answer"), unlisted && "answers too improbable to be listed"];
  const what = parts.filter(Boolean).join(", and ") || "nothing: these are all answers";
  $("rest").replaceChildren(element("span", { class: "line" }, element("span", {}, "Rest"),
    element("b", { class: "prob", id: "rest-prob" }, percent(rest))), bar(rest), element("small", {}, what));
  $("ranking-model").textContent = panes.length > 1 ? pane.model.name : "";
}

// Below each of two images, its first answers.
export function listStrips() {
  panes.forEach((pane, p) => {
    if (panes.length < 2) { pane.strip.replaceChildren(); return; }
    const shown = pane.ranked.modes.slice(0, 6);
    const chosen = Math.min(state.chosen, pane.ranked.modes.length - 1);
    refill(pane.strip, ...shown.map((mode, i) => element("button", {
      "data-key": `strip-${i}`, "aria-pressed": String(i === chosen),
      "aria-label": `${pane.model.name}, answer ${i + 1}, ${percent(mode.prob)}`,
      onclick: () => { state.active = p; chooseMode(i); },
    }, thumbnail(pane, mode.representative, draw.colour(i), 36), element("small", {}, percent(mode.prob)))),
    element("span", { class: "strip-rest" }, `rest ${percent(restOf(shown))}`,
      state.by === "mode" && state.coverage && pane.limit === null ? " · not calibrated: all answers" : ""));
  });
}

// The probability of each code, in the colour of its mode; samples have no prior to show.
export function listPrior() {
  const pane = activePane();
  const { answers } = pane.proposal;
  $("prior-figure").hidden = pane.model.samples;
  const modeOf = new Map();
  pane.ranked.modes.forEach((mode, i) => mode.members.forEach((k) => modeOf.set(k, i)));
  const top = Math.max(...answers.map((a) => a.prob));
  $("prior-what").textContent = `Prior over ${plural(answers.length, "code")}`;
  $("prior-top").textContent = `highest ${percent(top)}`;
  $("prior").replaceChildren(...answers.slice(0, 64).map((a, k) => {
    const found = element("i", { title: `${nameOf(pane, k)}: ${percent(a.prob)}` });
    found.style.height = `${Math.max(3, (100 * a.prob) / top)}%`;
    found.style.background = modeOf.has(k) ? draw.colour(modeOf.get(k)) : "var(--faint)";
    return found;
  }));
  $("prior").setAttribute("aria-label", `Probabilities of ${plural(answers.length, "code")}; the highest is ${percent(top)}`);
}

export function step(by) {
  const count = activePane().ranked.modes.length;
  chooseMode((state.chosen + by + count) % count);
  document.querySelector(`[data-mode="${state.chosen}"]`)?.scrollIntoView({ block: "nearest" });
}

export function showNumber(i) {
  if (i < activePane().ranked.modes.length) chooseMode(i);
}
