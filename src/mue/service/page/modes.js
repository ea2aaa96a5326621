// Modes of answers, as `mue.modes` forms them: a tree that is cut at a level.

function groups(tree, cut) {
  const up = (i) => (tree.height[i] !== null && tree.height[i] <= cut ? up(tree.parent[i]) : i);
  return tree.parent.map((_, i) => up(i));
}

// What is in none of some modes; probabilities are rounded, so that all of them may sum to 0.999999.
export function restOf(modes) {
  const rest = 1 - modes.reduce((sum, mode) => sum + mode.prob, 0);
  return rest > 1e-5 ? rest : 0;
}

// Entropy of some modes in nats; the rest counts as one more.
export function entropyOf(modes) {
  const probs = [...modes.map((mode) => mode.prob), restOf(modes)].filter((p) => p > 0);
  return probs.reduce((sum, p) => sum - p * Math.log(p), 0);
}

// The answers as modes, the most probable first; `rest` is what is in none that is shown.
// A limit is a promise of coverage, so it shows as many as are needed, whatever `max` says.
export function rank(proposal, { by, cut, limit, max }) {
  const { answers, tree } = proposal;
  const group = by === "code" ? answers.map((_, i) => i) : groups(tree, cut);
  const found = new Map();
  answers.forEach((_, i) => {
    if (!found.has(group[i])) found.set(group[i], []);
    found.get(group[i]).push(i);
  });
  const all = [...found.values()].map((members) => {
    const prob = members.reduce((sum, i) => sum + answers[i].prob, 0);
    const expected = members.map((i) =>
      members.reduce((sum, j) => sum + tree.distance[i][j] * answers[j].prob, 0));
    const least = Math.min(...expected);
    return { members, prob, representative: members[expected.indexOf(least)], spread: least / prob };
  });
  all.sort((a, b) => b.prob - a.prob);
  let before = 0;
  const kept = [];
  for (const mode of all) {
    if (limit === null ? kept.length >= max : before > limit + 1e-6) break;
    kept.push(mode);
    before += mode.prob;
  }
  return { modes: kept, rest: restOf(kept), hidden: all.length - kept.length, unlisted: restOf(all) };
}
