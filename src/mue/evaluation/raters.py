"""Evaluation against raters: slices that several people have annotated.

A new metric is a pure function in `mue.metrics` and one line in `METRICS`: the report, the table of
slices, what the commands print and `mue compare` take it from there.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mue.data.build import check_data
from mue.data.prepared.splits import Split
from mue.data.prepared.store import open_prepared
from mue.evaluation.answered import (
    GROUPED,
    MAX_ANSWERS,
    Progress,
    codes_in_use,
    propose_all,
    split_of_data,
)
from mue.evaluation.conformal import covered
from mue.inference.predictor import Predictor
from mue.metrics import energy
from mue.metrics.calibration import Reliability, annotated, brier, ece, presence, reliability
from mue.metrics.energy import empirical, energy_distance, sample_indices
from mue.metrics.bootstrap import Interval, interval, interval_of
from mue.metrics.matching import hm_iou
from mue.metrics.modes import distinct, mode_probabilities, mode_tv
from mue.metrics.overlap import top_dice
from mue.metrics.ranked import AT_LEAST, mode_shares, modes_for, ranked_before, rater_modes, up_to
from mue.modes import By, Modes
from mue.runtime.atomic import write_atomic
from mue.types import Case, Hypotheses

TOP = 16
"""Answers that `ged` weighs, renormalised."""
SAMPLES = (16, 32, 50, 100)
"""Numbers of samples for which the literature reports `ged_n`."""
MATCHED = 16
"""Samples that are matched to the raters."""
FIRST = (1, 2, 3)
"""Numbers of modes k for `coverage_k`."""


# --- what metrics are computed from ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Masks:
    """A batch of slices: answers s as masks, by probability p (normalised); raters ys by q.

    Missing raters have the weight 0. `modes` are those of the first `GROUPED` answers, `iou` is of
    these answers and the raters, `rater_mode` the mode of each rater. `true` says of each answer of
    a rater how probable it is, where that is known: equal answers are one.
    """

    s: Bool[Tensor, "b k c h w"]
    p: Float[Tensor, "b k"]
    ys: Bool[Tensor, "b m c h w"]
    q: Float[Tensor, "b m"]
    hypotheses: Hypotheses
    d: energy.Distances
    modes: Modes
    iou: Float[Tensor, "b k2 m"]
    rater_mode: Int[Tensor, "b m"]
    raters: Float[Tensor, "b m *y"]
    true: Float[Tensor, "b m"] | None

    def of_class(self, i: int) -> Masks:
        """The masks of one class; the modes stay those of all classes."""
        s, ys = self.s[:, :, i : i + 1], self.ys[:, :, i : i + 1]
        d = energy.distances(s, ys)
        return replace(self, s=s, ys=ys, d=d, iou=1 - d.sy[:, :GROUPED])


@dataclass(frozen=True, slots=True)
class Distances:
    """All slices: the distances 1 - IoU of answers and raters, without pixels.

    Of a model that samples, which may give thousands of answers, the distances of all pairs
    are not kept but the energy distance of the first n samples.

    Attributes:
        sy: Of each answer and each rater; 1 for an answer that was not kept, whose p is 0.
        first: Energy distance of the first n samples, by n; empty for a model that ranks.
        seed: Of the samples of `ged_n` and `hm_iou_n`.
    """

    sy: Float[Tensor, "b k m"]
    ss: Float[Tensor, "b k2 k2"]
    yy: Float[Tensor, "b m m"]
    p: Float[Tensor, "b k"]
    code: Int[Tensor, "b k"]
    q: Float[Tensor, "b m"]
    first: dict[int, Float[Tensor, " b"]]
    seed: int

    @property
    def top(self) -> int:
        """How many answers `ged` weighs: the most probable ones, or all samples."""
        k = self.p.shape[1]
        return k if self.first else min(TOP, k)

    def sample(self, n: int) -> Int[Tensor, "b n"] | None:
        """Sample n answers by probability; of a sampler the first n, None where it gave fewer."""
        if not self.first:
            return sample_indices(self.p, n, torch.Generator().manual_seed(self.seed))
        b, k = self.p.shape
        return torch.arange(n).expand(b, -1) if n <= k else None


def _ged(d: Distances) -> Tensor:
    if d.first:
        return d.first[d.top]
    p = d.p[:, : d.top] / d.p[:, : d.top].sum(dim=1, keepdim=True)
    return energy_distance(d.sy[:, : d.top], d.ss[:, : d.top, : d.top], d.yy, p, d.q)


def _ged_n(d: Distances, n: int) -> Tensor | None:
    pick = d.sample(n)
    if pick is None or d.first:
        return d.first.get(n)
    return energy_distance(d.sy, d.ss, d.yy, empirical(pick, d.p.shape[1]), d.q)


def _hm_iou_n(d: Distances, n: int) -> Tensor | None:
    pick = d.sample(n)
    if pick is None:
        return None
    return hm_iou((1 - d.sy)[torch.arange(len(pick))[:, None], pick], d.q)


def _dice_top(m: Masks) -> Tensor:
    first = m.modes.representative[:, 0]
    return top_dice(m.s[torch.arange(len(first), device=first.device), first][:, None], m.ys, m.q)


def _mode_tv(m: Masks) -> Tensor | None:
    if m.true is None:
        return None
    h = m.hypotheses
    return mode_tv(mode_probabilities(h.y, h.prob, m.raters, m.true), m.true)


def _coverage(m: Masks, k: int) -> Tensor:
    """Share of the raters who find their answer among the representatives of the first k modes."""
    first = m.modes.representative[:, :k, None].expand(-1, -1, m.q.shape[1])
    found = (m.iou.gather(1, first) >= AT_LEAST).any(dim=1)
    return (found * m.q).sum(dim=1)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of each slice, from batches of masks or from the distances of all slices.

    Either returns None where the metric is not defined. `in_report` says whether its mean over
    slices is meaningful, `by_class` whether it is also reported of each of several classes.
    """

    masks: Callable[[Masks], Tensor | None] | None = None
    distances: Callable[[Distances], Tensor | None] | None = None
    higher_is_better: bool = False
    in_report: bool = True
    in_comparison: bool = True
    by_class: bool = False


METRICS: dict[str, Metric] = {
    "mode_tv": Metric(_mode_tv),
    "ged": Metric(distances=_ged, by_class=True),
    "rest": Metric(
        distances=lambda d: (1 - d.p[:, : d.top].sum(dim=1)).clamp_min(0), in_comparison=False
    ),
    **{
        f"ged_{n}": Metric(
            distances=partial(_ged_n, n=n), in_comparison=n == MATCHED, by_class=n == MATCHED
        )
        for n in SAMPLES
    },
    f"hm_iou_{MATCHED}": Metric(
        distances=partial(_hm_iou_n, n=MATCHED), higher_is_better=True, by_class=True
    ),
    "dice_top": Metric(_dice_top, higher_is_better=True, by_class=True),
    **{f"coverage_{k}": Metric(partial(_coverage, k=k), higher_is_better=True) for k in FIRST},
    "n90": Metric(lambda m: modes_for(m.modes.prob, 0.9).float()),
    "in_no_mode": Metric(lambda m: ((m.rater_mode < 0) * m.q).sum(dim=1)),
    "presence": Metric(lambda m: presence(m.s, m.p), in_report=False, by_class=True),
    "annotated": Metric(lambda m: annotated(m.ys, m.q), in_report=False, by_class=True),
    "entropy": Metric(lambda m: m.modes.entropy(), in_report=False),
}
"""Every number of a slice, by the name of its column."""


# --- the evaluation -------------------------------------------------------------------------------


Statistic = Callable[[Tensor], float]
"""A number of the slices whose indices it is given."""


@dataclass(frozen=True, slots=True)
class RaterEvaluation:
    """The metrics of a model, slice by slice: a column for each of `METRICS` that is defined.

    `mode_prob` and `mode_share` are the probability of each mode, 0 beyond the last, and the share
    of the raters who are in it; `score` is `ranked_before` of each rater, q their weight.
    `promised` are the coverages that the model was calibrated for, each with its limit. `classes`
    has the columns of each class, where there are several.

    `codes` is the number of codes in use, `answers` that of the answers or samples for a slice at
    most, `passes` that of forward passes for them, and `data` the digest of the prepared data.
    """

    id: tuple[str, ...]
    patient: tuple[str, ...]
    columns: dict[str, Float[Tensor, " b"]]
    classes: dict[str, dict[str, Float[Tensor, " b"]]]
    mode_prob: Float[Tensor, "b m"]
    mode_share: Float[Tensor, "b m"]
    score: Float[Tensor, "b r"]
    q: Float[Tensor, "b r"]
    promised: tuple[tuple[float, float], ...]
    cut: float
    codes: int
    answers: int
    passes: int
    split: Split
    data: str

    def intervals(self) -> dict[str, Interval]:
        """Every metric whose mean is meaningful, with its bootstrap interval over patients."""
        return self._intervals(_reported(self.columns), self._statistics())

    def class_intervals(self) -> dict[str, dict[str, Interval]]:
        """The same of each class, for the metrics that a class has."""
        return {
            name: self._intervals(_reported(v), {"presence ece": _presence_ece(v)})
            for name, v in self.classes.items()
        }

    def difference(self, other: RaterEvaluation) -> dict[str, Interval]:
        """Every metric minus that of another model on the same slices, as paired differences."""
        columns, statistics = _reported(other.columns), other._statistics()

        def minus(mine: Statistic, theirs: Statistic) -> Statistic:
            return lambda index: mine(index) - theirs(index)

        return self._intervals(
            {n: v - columns[n] for n, v in _reported(self.columns).items() if n in columns},
            {name: minus(f, statistics[name]) for name, f in self._statistics().items()},
        )

    def _intervals(
        self, columns: dict[str, Tensor], statistics: dict[str, Statistic]
    ) -> dict[str, Interval]:
        group = torch.from_numpy(np.unique(self.patient, return_inverse=True)[1])
        rng = torch.Generator()  # seeded for each metric: all have the same resamples
        means = {n: interval(v, group, generator=rng.manual_seed(0)) for n, v in columns.items()}
        return means | {
            n: interval_of(f, group, generator=rng.manual_seed(0)) for n, f in statistics.items()
        }

    def _statistics(self) -> dict[str, Statistic]:
        """What is no mean over slices, as functions of the slices that are in a resample."""

        def of_modes(metric: Callable[[Tensor, Tensor], Tensor]) -> Statistic:
            def statistic(index: Tensor) -> float:
                p, share = self.mode_prob[index], self.mode_share[index]
                return metric(p[p > 0], share[p > 0]).mean().item()

            return statistic

        return {
            "presence ece": _presence_ece(self.columns),
            "mode brier": of_modes(brier),
            "mode ece": of_modes(ece),
        }

    def report(self) -> dict[str, object]:
        """Every metric with its interval, calibration of modes and of presence, and the counts."""
        found = {name: asdict(value) for name, value in self.intervals().items()}
        for name in self._statistics():
            del found[name]["std"]  # it is one number for all slices
        p, share = self.mode_prob, self.mode_share
        curves = {
            "mode": reliability(p[p > 0], share[p > 0]),
            "presence": reliability(self.columns["presence"], self.columns["annotated"]),
        }
        calibration = {
            kind: {
                **{score: found.pop(f"{kind} {score}") for score in ("brier", "ece")},
                "reliability": _bins(curve),
            }
            for kind, curve in curves.items()
        }
        return {
            "split": self.split,
            "data": self.data,
            "slices": len(self.id),
            "patients": len(set(self.patient)),
            "answers": self.answers,
            "passes": self.passes,
            "cut": self.cut,
            **found,
            **calibration,
            **self._class_report(),
            "coverage": self.coverage(),
            "codes_in_use": self.codes,
        }

    def _class_report(self) -> dict[str, object]:
        if not self.classes:
            return {}
        found = {n: {m: asdict(v) for m, v in c.items()} for n, c in self.class_intervals().items()}
        for metrics in found.values():
            del metrics["presence ece"]["std"]
        return {"classes": found}

    def coverage(self) -> list[dict[str, float]]:
        """For each coverage that was promised: the share of raters covered, and modes shown."""
        return [
            {
                "promised": promised,
                "covered": covered(limit, self.score, self.q, self.patient),
                "modes": up_to(self.mode_prob, limit).sum(dim=1).double().mean().item(),
            }
            for promised, limit in self.promised
        ]

    def save_table(self, path: Path) -> None:
        """Write a CSV file with a line for each slice."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        columns = self.columns | {
            f"{metric} {name}": v for name, c in self.classes.items() for metric, v in c.items()
        }
        table.writerow(["id", "patient", *columns])
        rows = zip(*(v.tolist() for v in columns.values()), strict=True)
        for name, patient, values in zip(self.id, self.patient, rows, strict=True):
            table.writerow([name, patient, *(f"{v:.6g}" for v in values)])
        write_atomic(path, text.getvalue().encode())


def _reported(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """The numbers of a slice whose mean is reported."""
    values = {name: v for name, v in columns.items() if METRICS[name].in_report}
    return values | {"presence brier": brier(columns["presence"], columns["annotated"])}


def _presence_ece(columns: dict[str, Tensor]) -> Statistic:
    p, share = columns["presence"], columns["annotated"]
    return lambda index: ece(p[index], share[index]).item()


def _bins(curve: Reliability) -> list[dict[str, int | float]]:
    rows = zip(curve.count.tolist(), curve.predicted.tolist(), curve.share.tolist(), strict=True)
    return [{"count": int(n), "predicted": p, "share": s} for n, p, s in rows if n]


def evaluate_raters(
    predictor: Predictor,
    data: str | Path,
    *,
    split: Split = "test",
    by: By = "mode",
    seed: int = 0,
    samples: int = 100,
    batch: int = 32,
    progress: Progress | None = None,
) -> RaterEvaluation:
    """Compare the answers to prepared slices with their raters. The model is not changed.

    Answers are probability maps cut at one half. `seed` is of the samples of `ged_n` and
    `hm_iou_n`. A model that samples gives `samples` answers: `ged` weighs them all equally,
    and `ged_n` takes the first n of them, which are n fresh samples. What is said of modes is said
    of single answers where these are ranked `by` code.
    """
    check_data(predictor.config.data, data)
    prepared = open_prepared(data)
    source = split_of_data(predictor, prepared, split)
    k = samples if predictor.is_sampler else min(MAX_ANSWERS, predictor.max_answers)
    everything, grouped = _Columns(predictor, seed), list[tuple[Tensor, ...]]()
    labels = _class_names(predictor)
    classes = {name: _Columns(predictor, seed, by_class=True) for name in labels}
    for case, h in propose_all(
        predictor, source, len(source), k, batch=batch, seed=seed, progress=progress
    ):
        masks = _masks(predictor, case, h, by, known=prepared.known)
        everything.add_(masks)
        for i, of_class in enumerate(classes.values()):
            of_class.add_(masks.of_class(i))
        grouped.append(_raters_in_modes(masks, predictor.config.modes.iou))
    whole, columns = everything.join()
    answers, m = whole.p.shape[1], max(p.shape[1] for p, _, _ in grouped)
    prob, share = (
        torch.cat([F.pad(g[i], (0, m - g[i].shape[1])) for g in grouped]) for i in (0, 1)
    )
    modes = predictor.config.modes
    return RaterEvaluation(
        id=tuple(row.id for row in source.rows),
        patient=tuple(row.patient for row in source.rows),
        columns=columns,
        classes={name: of_class.join()[1] for name, of_class in classes.items()},
        mode_prob=prob,
        mode_share=share,
        score=torch.cat([score for _, _, score in grouped]),
        q=whole.q,
        promised=tuple(zip(modes.coverage, modes.limits, strict=True)) if by == "mode" else (),
        cut=predictor.cut,
        codes=codes_in_use(predictor.codes, whole.code, whole.p),
        answers=answers,
        passes=predictor.network.forward_passes(answers),
        split=split,
        data=prepared.digest,
    )


def _class_names(predictor: Predictor) -> tuple[str, ...]:
    """The classes but the background; none where there is one mask."""
    count, config = predictor.config.model.c_out, predictor.config
    if config.objective.likelihood != "categorical" or count < 3:
        return ()
    return config.data.labels[1:] or tuple(f"class {i}" for i in range(1, count))


class _Columns:
    """Collects the numbers of each slice, batch by batch: all metrics, or those of a class."""

    def __init__(self, predictor: Predictor, seed: int, *, by_class: bool = False) -> None:
        self.seed, self.keep_pairs = seed, not predictor.is_sampler
        self.metrics = {n: m for n, m in METRICS.items() if m.by_class or not by_class}
        self.parts: list[Distances] = []
        self.found: dict[str, list[Tensor]] = {name: [] for name in self.metrics}

    def add_(self, masks: Masks) -> None:
        """Measure a batch."""
        self.parts.append(_distances(masks, self.seed, keep_pairs=self.keep_pairs))
        for name, metric in self.metrics.items():
            if metric.masks and (values := metric.masks(masks)) is not None:
                self.found[name].append(values.cpu())

    def join(self) -> tuple[Distances, dict[str, Tensor]]:
        """All batches as one: the distances, and the metrics that are defined."""
        whole, columns = _join(self.parts), dict[str, Tensor]()
        for name, metric in self.metrics.items():
            found = self.found[name]
            values = metric.distances(whole) if metric.distances else found and torch.cat(found)
            if isinstance(values, Tensor):
                columns[name] = values
        return whole, columns


def _masks(predictor: Predictor, case: Case, h: Hypotheses, by: By, *, known: bool) -> Masks:
    s, p, ys = predictor.masks(h.y), h.normalized().prob, predictor.masks(case.ys)
    d, first = energy.distances(s, ys), h.top(GROUPED).normalized()
    ss, iou = d.ss[:, :GROUPED, :GROUPED], 1 - d.sy[:, :GROUPED]
    modes = predictor.rule.group(first, by=by, distance=ss)
    true = distinct(d.yy, case.q) if known else None
    rater_mode = rater_modes(iou, modes.mode)
    return Masks(s, p, ys, case.q, h, d, modes, iou, rater_mode, case.ys, true)


def _raters_in_modes(m: Masks, at_least: float) -> tuple[Tensor, Tensor, Tensor]:
    """Probability of each mode, share of the raters in it, and `ranked_before` of each rater."""
    prob, mode = m.modes.prob, m.modes.mode
    share = mode_shares(m.rater_mode, m.q, prob.shape[1])
    return prob.cpu(), share.cpu(), ranked_before(m.iou, mode, prob, at_least).cpu()


def _distances(m: Masks, seed: int, *, keep_pairs: bool) -> Distances:
    """The distances of a batch, on the CPU."""
    d, h = m.d, m.hypotheses
    sy, ss, yy, p, code, q = (t.cpu() for t in (d.sy, d.ss, d.yy, h.prob, h.code, m.q))
    first: dict[int, Tensor] = {}
    if not keep_pairs:
        k = p.shape[1]
        equal = {n: torch.full((len(q), n), 1 / n) for n in {*SAMPLES, k} if n <= k}
        first = {n: energy_distance(sy[:, :n], ss[:, :n, :n], yy, w, q) for n, w in equal.items()}
        ss = ss[:, :0, :0]
    # a slice is copied, or it would keep the distances of all pairs in memory
    return Distances(sy.clone(), ss.clone(), yy.clone(), p, code, q, first, seed)


def _join(parts: list[Distances]) -> Distances:
    """All batches as one; batches differ in how many answers were decoded."""
    k = max(part.p.shape[1] for part in parts)
    padded = [(part, k - part.p.shape[1]) for part in parts]
    p = torch.cat([F.pad(part.p, (0, more)) for part, more in padded])
    sy = torch.cat([F.pad(part.sy, (0, 0, 0, more), value=1) for part, more in padded])
    return Distances(
        sy=sy.masked_fill((p == 0)[:, :, None], 1),  # what was not kept covers nobody
        ss=torch.cat([F.pad(part.ss, (0, more, 0, more), value=1) for part, more in padded]),
        yy=torch.cat([part.yy for part in parts]),
        p=p,
        code=torch.cat([F.pad(part.code, (0, more), value=-1) for part, more in padded]),
        q=torch.cat([part.q for part in parts]),
        first={n: torch.cat([part.first[n] for part in parts]) for n in parts[0].first},
        seed=parts[0].seed,
    )
