"""Evaluation where the modes and their probabilities are known: synthetic data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.data.build import build_source
from mue.data.prepared.splits import Split
from mue.evaluation.answered import GROUPED, Judge, Progress, Request, answered
from mue.evaluation.items import check_inputs
from mue.evaluation.measures import codes_in_use
from mue.inference.predictor import Predictor
from mue.metrics.bootstrap import Interval, interval
from mue.metrics.modes import mode_mae, mode_probabilities, mode_tv


@dataclass(frozen=True, slots=True)
class ModeEvaluation:
    """The probability that a model gives to each known mode of each input.

    At most k answers to an input are decoded; `rest` is the probability of the others. `group` is
    the category of each input, `codes` the number of codes in use, `modes` the number of modes that
    the answers to each input are grouped into.
    """

    predicted: Float[Tensor, "b m"]
    true: Float[Tensor, "b m"]
    rest: Float[Tensor, " b"]
    group: tuple[str, ...]
    modes: Int[Tensor, " b"]
    codes: int
    k: int
    seed: int
    split: Split = "test"

    def rows(self) -> list[dict[str, str | float]]:
        """For each category and mode: the true probability, and what is predicted."""
        table: list[dict[str, str | float]] = []
        for name in sorted(set(self.group)):
            member = torch.tensor([g == name for g in self.group])
            for m in range(self.true.shape[1]):
                p, true = self.predicted[member, m], self.true[member, m][0].item()
                mean, deviation = p.mean().item(), p.std(correction=0).item()
                row = {"true": true, "predicted": mean, "deviation": deviation}
                table.append({"group": name, "mode": m + 1, **row})
        return table

    def intervals(self) -> dict[str, Interval]:
        """Each metric with its bootstrap interval over inputs, which are independent."""
        return _intervals(self._columns())

    def difference(self, other: ModeEvaluation) -> dict[str, Interval]:
        """Each metric minus that of another model on the same inputs, as paired differences."""
        columns = other._columns()
        return _intervals({name: v - columns[name] for name, v in self._columns().items()})

    def _columns(self) -> dict[str, Tensor]:
        return {f.__name__: f(self.predicted, self.true) for f in (mode_tv, mode_mae)}

    def report(self) -> dict[str, object]:
        """Each metric with its mean, standard deviation and 95th percentile, and the table."""
        return {
            "split": self.split,
            "inputs": len(self.group),
            "seed": self.seed,
            "k": self.k,
            "mode_tv": summary(mode_tv(self.predicted, self.true)),
            "mode_mae": summary(mode_mae(self.predicted, self.true)),
            "rest": summary(self.rest),
            "modes": {"min": int(self.modes.amin()), "max": int(self.modes.amax())},
            "codes_in_use": self.codes,
            "table": self.rows(),
        }


def _intervals(columns: dict[str, Tensor]) -> dict[str, Interval]:
    each, rng = torch.arange(len(next(iter(columns.values())))), torch.Generator()
    return {n: interval(v, each, generator=rng.manual_seed(0)) for n, v in columns.items()}


def summary(values: Float[Tensor, " b"]) -> dict[str, float]:
    """Mean, standard deviation and 95th percentile over inputs."""
    v = values.double()
    mean, std, p95 = v.mean(), v.std(correction=0), v.quantile(0.95)
    return {"mean": mean.item(), "std": std.item(), "p95": p95.item()}


def evaluate_modes(
    predictor: Predictor,
    *,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    k: int = 16,
    batch: int | None = None,
    also: Judge | None = None,
    progress: Progress | None = None,
) -> ModeEvaluation:
    """Compare predicted with true probabilities of modes. The model is not changed.

    The probability of each of the k most probable answers counts for its nearest true mode. `also`
    is given the answers to its items, of the same data.
    """
    check_inputs(inputs)
    k = predictor.count(min(k, predictor.max_answers))
    batch = max(1, min(50, 8192 // max(1, k))) if batch is None else batch
    source = build_source(predictor.config.data, split, seed=seed, device=predictor.device)
    batches: list[tuple[Tensor, ...]] = []
    group: list[str] = []
    request = Request(torch.arange(inputs, device=source.device), k, batch=batch, seed=seed)
    for each in answered(predictor, source, request, also=also, progress=progress):
        case, h = each.case, each.h
        p = mode_probabilities(h.y, h.prob, case.ys)
        modes = predictor.group(h.top(GROUPED)).count
        found = p, case.q, h.rest, modes, h.code.flatten(), h.prob.flatten()
        batches.append(tuple(tensor.cpu() for tensor in found))
        group.extend(case.group)
    p, q, rest, modes, code, prob = (torch.cat(tensors) for tensors in zip(*batches, strict=True))
    codes = codes_in_use(predictor.codes, code, prob)
    return ModeEvaluation(p, q, rest, tuple(group), modes, codes, k, seed, split)
