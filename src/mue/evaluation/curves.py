"""How many samples of a model it takes to approximate the true probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mue.data.build import build_source
from mue.data.prepared.splits import Split
from mue.evaluation.answered import Progress, Request, answered
from mue.evaluation.items import check_inputs
from mue.evaluation.speed import seconds_for
from mue.inference.predictor import Predictor
from mue.metrics.modes import mode_tv, nearest_mode

COUNTS = tuple(2**i for i in range(13))
"""Numbers of samples of a curve: 1, 2, 4, …, 4096."""
CURVE_INPUTS = 100
"""Inputs that a curve is the mean of."""


@dataclass(frozen=True, slots=True)
class Point:
    """The error of a model with a number of answers, and the seconds they take for one input."""

    answers: int
    mode_tv: float
    seconds: float


def sample_curve(
    predictor: Predictor,
    *,
    counts: Sequence[int] = COUNTS,
    split: Split = "test",
    inputs: int = CURVE_INPUTS,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Point]:
    """The error of the frequencies of a sampler, by the number of samples.

    The largest number is sampled once, and its first n are the n samples. A model that ranks its
    answers has one point: its top 16.
    """
    check_inputs(inputs)
    if not predictor.is_sampler:
        counts = (min(16, predictor.max_answers),)
    source = build_source(predictor.config.data, split, seed=seed, device=predictor.device)
    tv: dict[int, list[Tensor]] = {n: [] for n in sorted(set(counts))}
    items = torch.arange(inputs, device=source.device)
    request = Request(items, max(counts), min_prob=0.0, batch=1, seed=seed)
    for each in answered(predictor, source, request, progress=progress):
        case, h = each.case, each.h
        mode = F.one_hot(nearest_mode(h.y, case.ys), case.q.shape[1])
        for n, found in tv.items():
            weight = torch.full_like(h.prob, 1 / n) if predictor.is_sampler else h.prob
            p = (mode[:, :n] * weight[:, :n, None]).sum(dim=1)
            found.append(mode_tv(p, case.q).cpu())
    x = source.case(torch.tensor([0], device=predictor.device)).x
    mean = {n: torch.cat(found).mean().item() for n, found in tv.items()}
    return [Point(n, error, seconds_for(predictor, x, n)) for n, error in mean.items()]
