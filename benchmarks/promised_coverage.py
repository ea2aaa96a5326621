"""Whether conformal sets hold what they promise, on patients that were not used to find them.

    python benchmarks/promised_coverage.py DATA [--model lidc-exact] [--write]

DATA is LIDC-IDRI as `mue data import lidc` prepared it. The model answers the slices of val and
test once. Then their patients are divided at random, 20 times, into a half that finds the limit up
to which modes are shown, and a half that it is tried on. The model's prior and its cut were fitted
to val alone. With `--write`, rewrites the table of docs/results.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import mue
from mue.evaluation.conformal import covered, limit_for, reachable
from mue.evaluation.raters import RaterEvaluation, evaluate_raters
from mue.metrics.ranked import up_to
from mue.runs.folder import commit
from pages import RESULTS, insert, markdown

DIVISIONS, SEED = 20, 0
ASKED = (0.7, 0.8, 0.9)


class Slices:
    """The slices of several evaluations, of which some patients can be taken."""

    def __init__(self, parts: list[RaterEvaluation]) -> None:
        m = max(part.mode_prob.shape[1] for part in parts)
        self.prob = torch.cat([F.pad(p.mode_prob, (0, m - p.mode_prob.shape[1])) for p in parts])
        self.score = torch.cat([part.score for part in parts])
        self.q = torch.cat([part.q for part in parts])
        self.patient = np.array([name for part in parts for name in part.patient])

    def of(self, patients: set[str]) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
        """Scores, weights and patients of some of them, as `conformal` takes them."""
        kept = self.kept(patients)
        return self.score[kept], self.q[kept], self.patient[kept.numpy()].tolist()

    def kept(self, patients: set[str]) -> torch.Tensor:
        """Which slices are theirs."""
        return torch.tensor([name in patients for name in self.patient])

    def modes(self, limit: float, patients: set[str]) -> float:
        """How many modes are shown, on average over slices."""
        prob = self.prob[self.kept(patients)]
        return up_to(prob, limit).sum(dim=1).double().mean().item()


def divisions(slices: Slices, asked: float) -> tuple[list[float], list[float]]:
    """Coverage of the other half, and modes shown, for each division."""
    names, shares, counts = sorted(set(slices.patient.tolist())), list[float](), list[float]()
    for i in range(DIVISIONS):
        order = np.random.default_rng([SEED, i]).permutation(names).tolist()
        half, others = set(order[: len(order) // 2]), set(order[len(order) // 2 :])
        limit = limit_for(asked, *slices.of(half))
        assert limit is not None, f"{asked} is out of reach"
        shares.append(covered(limit, *slices.of(others)))
        counts.append(slices.modes(limit, others))
    return shares, counts


def main() -> None:
    """Measure, print, write."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="lidc-exact")
    parser.add_argument("--write", action="store_true", help="rewrite docs/results.md")
    options = parser.parse_args()
    predictor = mue.load(options.model)
    parts = [evaluate_raters(predictor, options.data, split=split) for split in ("val", "test")]
    slices = Slices(parts)
    everybody = set(slices.patient.tolist())
    rows = list[list[str]]()
    for asked in ASKED:
        shares, counts = divisions(slices, asked)
        span = f"{min(shares):.3f} to {max(shares):.3f}"
        rows.append([f"{asked:g}", f"{np.mean(shares):.3f}", span, f"{np.mean(counts):.2f}"])
    test = [
        [f"{r['promised']:g}", f"{r['covered']:.3f}", f"{r['modes']:.2f}"]
        for r in parts[1].coverage()
    ]
    reach, made = reachable(*slices.of(everybody)), str(commit())[:12]
    about = (
        f"`{options.model}`, {len(everybody)} patients of val and test divided {DIVISIONS} times "
        f"into halves, seed {SEED}, commit {made}. At most {reach:.3f} can be reached."
    )
    text = "\n\n".join(
        [
            f"    python benchmarks/promised_coverage.py lidc --model {options.model} --write",
            about,
            markdown(["asked", "covered, mean", "least to most", "modes shown"], rows),
            "As calibrated on val and stored with the model, on the test patients:",
            markdown(["promised", "covered", "modes shown"], test),
        ]
    )
    print(text)
    if options.write:
        insert(RESULTS, text, "coverage")


if __name__ == "__main__":
    main()
