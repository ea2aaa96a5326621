// Elements of the page, messages, and how numbers are written.

export const $ = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
    else if (name === "class") found.className = value;
    else if (value === true) found.setAttribute(name, "");
    else if (value !== false && value !== null) found.setAttribute(name, value);
  }
  found.append(...children);
  return found;
}

// Replace the children of an element; what had the focus has it afterwards, by its data-key.
export function refill(parent, ...children) {
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  parent.replaceChildren(...children);
  if (key) parent.querySelector(`[data-key="${key}"]`)?.focus({ preventScroll: true });
}

// Of the buttons of a group the one that is chosen.
export const press = (name, value) => document.querySelectorAll(`[data-${name}]`).forEach((button) =>
  button.setAttribute("aria-pressed", String(button.dataset[name] === value)));

let hide = 0;
export function say(sentence, kind = "note") {
  const toast = $("toast");
  toast.firstElementChild.textContent = sentence;
  toast.dataset.kind = kind;
  toast.hidden = false;
  clearTimeout(hide);
  hide = setTimeout(hush, kind === "note" ? 4000 : 12_000);
}
export function hush(kind = null) {
  const toast = $("toast");
  if (!kind || toast.dataset.kind === kind) toast.hidden = true;
}

export const fail = (error) => say(error.message, "error");
export function busy(on) {
  document.body.classList.toggle("busy", on);
  $("panes").setAttribute("aria-busy", String(on));
}

// One digit after the point, so that what is shown adds up; what is there is never shown as nothing.
export const percent = (p) => (p > 0 && p < 0.0005 ? "< 0.1 %" : `${(100 * p).toFixed(1)} %`);

// As many digits as the range of values calls for.
export function rounded(value, range) {
  const digits = Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(Math.max(range, 1e-6)))));
  return value.toFixed(range >= 10 ? 0 : digits).replace("-", "−");
}

export const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);
