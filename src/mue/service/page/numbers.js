// Numbers of the view in a link: their usual value, the least and the most.

import { state } from "./state.js";

export function writeNumbers(view, numbers) {
  for (const [name, [usual]] of Object.entries(numbers)) {
    if (Math.abs(state[name] - usual) > 0.005) view.set(name, Number(state[name].toFixed(4)));
  }
}

export function readNumbers(view, numbers) {
  const found = {};
  for (const [name, [, low, high]] of Object.entries(numbers)) {
    const value = Number(view.get(name) ?? NaN);
    if (Number.isFinite(value)) found[name] = Math.min(high, Math.max(low, value));
  }
  return found;
}
