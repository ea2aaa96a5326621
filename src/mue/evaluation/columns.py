"""The numbers of each slice that raters annotated: what is measured, and from what.

A new metric is a pure function in `mue.metrics` and one line in `METRICS`: the report, the table of
slices, what the commands print and `mue compare` take it from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mue.evaluation.answered import GROUPED
from mue.inference.predictor import Predictor
from mue.metrics import (
    Distances,
    annotated,
    covered_share,
    distances,
    hm_iou,
    mode_probabilities,
    mode_tv,
    modes_for,
    outside_share,
    presence,
    rater_modes,
    sampled_energy_distance,
    sampled_hm_iou,
    top_dice,
)
from mue.metrics.modes import distinct
from mue.modes import By, Modes
from mue.types import Case, Hypotheses

TOP = 16
"""Answers that `ged` weighs, renormalised."""
GED_N = (16, 32, 50, 100)
"""Numbers of samples for which the literature reports `ged_n`."""
MATCHED = 16
"""Samples that are matched to the raters."""
FIRST = (1, 2, 3)
"""Numbers of modes k for `coverage_k`."""


@dataclass(frozen=True, slots=True)
class Masks:
    """A batch of slices: answers s as masks, by probability p (normalised); raters ys by q.

    Missing raters have the weight 0. `modes` are those of the first `GROUPED` answers, `iou` is of
    these answers and the raters, `rater_mode` the mode of each rater, whose answer is like theirs
    from an IoU of `at_least` on. `true` says of each answer of a rater how probable it is, where
    that is known (`Case.known`): equal answers are one.
    """

    s: Bool[Tensor, "b k c h w"]
    p: Float[Tensor, "b k"]
    ys: Bool[Tensor, "b r c h w"]
    q: Float[Tensor, "b r"]
    hypotheses: Hypotheses
    d: Distances
    modes: Modes
    iou: Float[Tensor, "b k2 r"]
    at_least: float
    rater_mode: Int[Tensor, "b r"]
    raters: Float[Tensor, "b r *y"]
    true: Float[Tensor, "b r"] | None

    def of_class(self, i: int) -> Masks:
        """The masks of one class; the modes stay those of all classes."""
        s, ys = self.s[:, :, i : i + 1], self.ys[:, :, i : i + 1]
        d = distances(s, ys)
        return replace(self, s=s, ys=ys, d=d, iou=1 - d.sy[:, :GROUPED])


def masks_of_case(predictor: Predictor, case: Case, h: Hypotheses, by: By) -> Masks:
    """Answers and raters as masks."""
    s, p, ys = predictor.masks(h.y), h.normalized().prob, predictor.masks(case.ys)
    d, first, at_least = distances(s, ys), h.top(GROUPED).normalized(), predictor.config.modes.iou
    ss, iou = d.ss[:, :GROUPED, :GROUPED], 1 - d.sy[:, :GROUPED]
    modes = predictor.rule.group(first, by=by, distance=ss)
    true = distinct(d.yy, case.q) if case.known else None
    rater_mode = rater_modes(iou, modes.mode, at_least)
    return Masks(s, p, ys, case.q, h, d, modes, iou, at_least, rater_mode, case.ys, true)


@dataclass(frozen=True, slots=True)
class SplitDistances:
    """All slices of a split: the distances 1 - IoU of answers and raters, without pixels.

    Of a model that samples, which may give thousands of answers, the distances of all pairs
    are not kept but the energy distance of the first n samples.

    Attributes:
        d: Of each answer and each rater it is 1 for an answer that was not kept, whose p is 0.
        first: Energy distance of the first n samples, by n; empty for a model that ranks.
        seed: Of the samples of `ged_n` and `hm_iou_n`.
    """

    d: Distances
    p: Float[Tensor, "b k"]
    code: Int[Tensor, "b k"]
    q: Float[Tensor, "b r"]
    first: dict[int, Float[Tensor, " b"]]
    seed: int

    @property
    def top(self) -> int:
        """How many answers `ged` weighs: the most probable ones, or all samples."""
        k = self.p.shape[1]
        return k if self.first else min(TOP, k)

    @property
    def generator(self) -> torch.Generator:
        """A fresh one: every metric takes the same samples."""
        return torch.Generator().manual_seed(self.seed)


def _ged(m: SplitDistances) -> Tensor:
    if m.first:
        return m.first[m.top]
    p = m.p[:, : m.top] / m.p[:, : m.top].sum(dim=1, keepdim=True)
    return m.d.top(m.top).energy(p, m.q)


def _ged_n(m: SplitDistances, n: int) -> Tensor | None:
    """Of a sampler that of its first n samples, where it gave as many."""
    return m.first.get(n) if m.first else sampled_energy_distance(m.d, m.p, m.q, n, m.generator)


def _hm_iou_n(m: SplitDistances, n: int) -> Tensor | None:
    """Of a sampler that of its first n samples, where it gave as many."""
    iou = 1 - m.d.sy
    if not m.first:
        return sampled_hm_iou(iou, m.p, m.q, n, m.generator)
    return hm_iou(iou[:, :n], m.q) if n <= iou.shape[1] else None


def _dice_top(m: Masks) -> Tensor:
    first = m.modes.representative[:, 0]
    return top_dice(m.s[torch.arange(len(first), device=first.device), first][:, None], m.ys, m.q)


def _mode_tv(m: Masks) -> Tensor | None:
    if m.true is None:
        return None
    h = m.hypotheses
    return mode_tv(mode_probabilities(h.y, h.prob, m.raters, m.true), m.true)


def _coverage_k(m: Masks, k: int) -> Tensor:
    """By the representatives of the first k modes."""
    first = m.modes.representative[:, :k, None].expand(-1, -1, m.q.shape[1])
    return covered_share(m.iou.gather(1, first), m.q, m.at_least)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of each slice, from batches of masks or from the distances of all slices.

    Either returns None where the metric is not defined. `in_report` says whether its mean over
    slices is meaningful, `by_class` whether it is also reported of each of several classes.
    """

    masks: Callable[[Masks], Tensor | None] | None = None
    distances: Callable[[SplitDistances], Tensor | None] | None = None
    higher_is_better: bool = False
    in_report: bool = True
    in_comparison: bool = True
    by_class: bool = False


METRICS: dict[str, Metric] = {
    "mode_tv": Metric(_mode_tv),
    "ged": Metric(distances=_ged, by_class=True),
    "rest": Metric(
        distances=lambda m: (1 - m.p[:, : m.top].sum(dim=1)).clamp_min(0), in_comparison=False
    ),
    **{
        f"ged_{n}": Metric(
            distances=partial(_ged_n, n=n), in_comparison=n == MATCHED, by_class=n == MATCHED
        )
        for n in GED_N
    },
    f"hm_iou_{MATCHED}": Metric(
        distances=partial(_hm_iou_n, n=MATCHED), higher_is_better=True, by_class=True
    ),
    "dice_top": Metric(_dice_top, higher_is_better=True, by_class=True),
    **{f"coverage_{k}": Metric(partial(_coverage_k, k=k), higher_is_better=True) for k in FIRST},
    "n90": Metric(lambda m: modes_for(m.modes.prob, 0.9).float()),
    "in_no_mode": Metric(lambda m: outside_share(m.rater_mode, m.q)),
    "presence": Metric(lambda m: presence(m.s, m.p), in_report=False, by_class=True),
    "annotated": Metric(lambda m: annotated(m.ys, m.q), in_report=False, by_class=True),
    "entropy": Metric(lambda m: m.modes.entropy(), in_report=False),
}
"""Every number of a slice, by the name of its column."""


class Columns:
    """Collects the numbers of each slice, batch by batch: all metrics, or those of a class.

    `keep_pairs` where the distances of every two answers fit in memory: of a model that ranks.
    """

    def __init__(self, seed: int, *, keep_pairs: bool, by_class: bool = False) -> None:
        self.seed, self.keep_pairs = seed, keep_pairs
        self.metrics = {n: m for n, m in METRICS.items() if m.by_class or not by_class}
        self.parts: list[SplitDistances] = []
        self.found: dict[str, list[Tensor]] = {name: [] for name in self.metrics}

    def add_(self, masks: Masks) -> None:
        """Measure a batch."""
        self.parts.append(_on_host(masks, self.seed, keep_pairs=self.keep_pairs))
        for name, metric in self.metrics.items():
            if metric.masks and (values := metric.masks(masks)) is not None:
                self.found[name].append(values.cpu())

    def join(self) -> tuple[SplitDistances, dict[str, Tensor]]:
        """All batches as one: the distances, and the metrics that are defined."""
        whole, columns = _join(self.parts), dict[str, Tensor]()
        for name, metric in self.metrics.items():
            found = self.found[name]
            values = metric.distances(whole) if metric.distances else found and torch.cat(found)
            if isinstance(values, Tensor):
                columns[name] = values
        return whole, columns


def _on_host(m: Masks, seed: int, *, keep_pairs: bool) -> SplitDistances:
    """The distances of a batch, in the memory of the host."""
    h, d = m.hypotheses, Distances(m.d.sy.cpu(), m.d.ss.cpu(), m.d.yy.cpu())
    p, code, q = h.prob.cpu(), h.code.cpu(), m.q.cpu()
    first: dict[int, Tensor] = {}
    ss = d.ss
    if not keep_pairs:
        k = p.shape[1]
        equal = {n: torch.full((len(q), n), 1 / n) for n in {*GED_N, k} if n <= k}
        first = {n: d.top(n).energy(w, q) for n, w in equal.items()}
        ss = ss[:, :0, :0]
    # a slice is copied, or it would keep the distances of all pairs in memory
    kept = Distances(d.sy.clone(), ss.clone(), d.yy.clone())
    return SplitDistances(kept, p, code, q, first, seed)


def _join(parts: list[SplitDistances]) -> SplitDistances:
    """All batches as one; batches differ in how many answers were decoded."""
    k = max(part.p.shape[1] for part in parts)
    padded = [(part, k - part.p.shape[1]) for part in parts]
    p = torch.cat([F.pad(part.p, (0, more)) for part, more in padded])
    sy = torch.cat([F.pad(part.d.sy, (0, 0, 0, more), value=1) for part, more in padded])
    ss = torch.cat([F.pad(part.d.ss, (0, more, 0, more), value=1) for part, more in padded])
    return SplitDistances(
        Distances(
            sy=sy.masked_fill((p == 0)[:, :, None], 1),  # what was not kept covers nobody
            ss=ss,
            yy=torch.cat([part.d.yy for part in parts]),
        ),
        p=p,
        code=torch.cat([F.pad(part.code, (0, more), value=-1) for part, more in padded]),
        q=torch.cat([part.q for part in parts]),
        first={n: torch.cat([part.first[n] for part in parts]) for n in parts[0].first},
        seed=parts[0].seed,
    )
