"""A predictor and cases, turned into numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.data.build import build_source
from mue.errors import MueError
from mue.inference.predictor import Predictor
from mue.metrics.modes import mode_mae, mode_probabilities, mode_tv

IN_USE = 0.01
"""A code counts as in use when it is more probable than this for some input."""

MOST = 64
"""Answers that are decoded for a slice with several raters, at the most."""

NEGLIGIBLE = 1e-4
"""Answers less probable than this, for all inputs of a batch, are not decoded; they are `rest`."""


@dataclass(frozen=True, slots=True)
class ModeEvaluation:
    """What a model says about cases whose modes are known.

    Attributes:
        predicted: Probability given to each mode.
        true: Probability of each mode.
        rest: Probability of the answers that were not decoded.
        group: Category of each input.
        codes: Codes in use: more probable than 1 % for some input.
        k: Answers decoded for each input, at the most.
        seed: Of the test inputs.
    """

    predicted: Float[Tensor, "b m"]
    true: Float[Tensor, "b m"]
    rest: Float[Tensor, " b"]
    group: tuple[str, ...]
    codes: int
    k: int
    seed: int

    def rows(self) -> list[dict[str, str | float]]:
        """For each category and mode: the true probability, and what is predicted."""
        table: list[dict[str, str | float]] = []
        for name in sorted(set(self.group)):
            member = torch.tensor([g == name for g in self.group])
            for m in range(self.true.shape[1]):
                p = self.predicted[member, m]
                table.append(
                    {
                        "group": name,
                        "mode": m + 1,
                        "true": self.true[member, m][0].item(),
                        "predicted": p.mean().item(),
                        "deviation": p.std(correction=0).item(),
                    }
                )
        return table

    def report(self) -> dict[str, object]:
        """What `report.json` holds: each metric an object, and the table."""
        return {
            "inputs": len(self.group),
            "seed": self.seed,
            "k": self.k,
            "mode_tv": summary(mode_tv(self.predicted, self.true)),
            "mode_mae": summary(mode_mae(self.predicted, self.true)),
            "rest": summary(self.rest),
            "codes_in_use": self.codes,
            "table": self.rows(),
        }


def summary(values: Float[Tensor, " b"]) -> dict[str, float]:
    """Mean, deviation and 95th percentile over inputs."""
    values = values.double()
    return {
        "mean": values.mean().item(),
        "std": values.std(correction=0).item(),
        "p95": values.quantile(0.95).item(),
    }


def evaluate_modes(
    predictor: Predictor,
    *,
    inputs: int = 1000,
    seed: int = 0,
    k: int = 16,
    batch: int | None = None,
    watch: Callable[[int], None] | None = None,
) -> ModeEvaluation:
    """Judge a model by test inputs whose modes and probabilities are known.

    Each of the k most probable answers counts for the true mode it is nearest to. `watch` is told
    how many inputs are done. The model is not changed.
    """
    if inputs < 1:
        raise MueError(f"`inputs` must be at least 1, got {inputs}")
    k = min(k, predictor.max_answers)
    batch = max(1, min(50, 8192 // max(1, k))) if batch is None else batch
    source = build_source(predictor.config.data, "test", seed=seed, device=predictor.device)
    predicted: list[Tensor] = []
    true: list[Tensor] = []
    rest: list[Tensor] = []
    group: list[str] = []
    used = torch.zeros(predictor.codes + 1)  # the last stands for an answer without a code
    generator = torch.Generator().manual_seed(seed)
    for first in range(0, inputs, batch):
        index = torch.arange(first, min(first + batch, inputs), device=predictor.device)
        case = source.case(index)
        h = predictor.propose(case.x, k, min_prob=NEGLIGIBLE, generator=generator)
        predicted.append(mode_probabilities(h.y, h.prob, case.ys).cpu())
        true.append(case.q.cpu())
        rest.append(h.rest.cpu())
        group.extend(case.group)
        note_codes_(used, h.code.cpu(), h.prob.cpu())
        if watch is not None:
            watch(len(group))
    return ModeEvaluation(
        predicted=torch.cat(predicted),
        true=torch.cat(true),
        rest=torch.cat(rest),
        group=tuple(group),
        codes=int((used[:-1] > IN_USE).sum()),
        k=k,
        seed=seed,
    )


def note_codes_(
    used: Float[Tensor, " n"], code: Int[Tensor, "b k"], prob: Float[Tensor, "b k"]
) -> None:
    """Keep the highest probability of each code; answers without one count for the last entry."""
    used.scatter_reduce_(0, code.flatten() % len(used), prob.flatten(), "amax")
