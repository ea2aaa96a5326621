// Which answer is shown.

import { step, showNumber } from "../ranking.js";
import { state } from "../state.js";

const numbers = [...Array(9).keys()].map((i) => [i + 1, () => showNumber(i)]);

export default {
  keys: {
    ...Object.fromEntries(numbers),
    arrowright: () => step(1), arrowdown: () => step(1), arrowleft: () => step(-1), arrowup: () => step(-1),
  },
  help: { "1 … 9": "show an answer", "← →": "the answer before, and after" },
  write: (view) => state.chosen && view.set("answer", state.chosen + 1),
  after: (view) => (Number(view.get("answer")) > 1 ? { chosen: Math.floor(Number(view.get("answer"))) - 1 } : {}),
};
