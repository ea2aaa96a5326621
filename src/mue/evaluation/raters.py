"""Evaluation against raters: slices that several people have annotated.

A new metric is a pure function in `mue.metrics` and one line in `METRICS`: the report, the table of
slices, what the commands print and `mue compare` take it from there.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mue.atomic import write_atomic
from mue.data.build import check_data
from mue.data.prepared.dataset import Slices
from mue.data.prepared.splits import Split
from mue.data.prepared.store import open_prepared
from mue.evaluation.answers import MAX_ANSWERS, Progress, codes_in_use, propose_all
from mue.inference.predictor import Predictor
from mue.metrics.calibration import annotated, brier, ece, presence, reliability
from mue.metrics.energy import distances, empirical, energy_distance, sample_indices
from mue.metrics.interval import Interval, interval, interval_of
from mue.metrics.matching import hm_iou
from mue.metrics.overlap import top_dice
from mue.types import Hypotheses

TOP = 16
"""Answers that `ged` weighs, renormalised."""
SAMPLES = (16, 32, 50, 100)
"""Numbers of samples for which the literature reports `ged_n`."""
MATCHED = 16
"""Samples that are matched to the raters."""
FIRST = (1, 4, 8, 16)
"""Numbers of answers k for `coverage_k`."""


# --- what metrics are computed from ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Masks:
    """A batch of slices: answers s, cut at one half, by probability p (normalised); raters by q."""

    s: Bool[Tensor, "b k c h w"]
    p: Float[Tensor, "b k"]
    ys: Bool[Tensor, "b m c h w"]
    q: Float[Tensor, "b m"]
    hypotheses: Hypotheses


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
    return None if pick is None else hm_iou((1 - d.sy)[torch.arange(len(pick))[:, None], pick])


def _coverage(d: Distances, k: int) -> Tensor:
    return (((1 - d.sy[:, :k]).amax(dim=1) >= 0.5) * d.q).sum(dim=1)


def _entropy(m: Masks) -> Tensor:
    """Entropy of the distinct answers, in nats: those that overlap by half are one."""
    h, k = m.hypotheses, MAX_ANSWERS
    top = Hypotheses(h.y[:, :k], h.prob[:, :k], h.code[:, :k]).normalized()
    return top.modes(cut=0.5).entropy()


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of each slice, from batches of masks or from the distances of all slices.

    `distances` returns None where the metric is not defined. `in_report` says whether its mean over
    slices is meaningful.
    """

    masks: Callable[[Masks], Tensor] | None = None
    distances: Callable[[Distances], Tensor | None] | None = None
    higher_is_better: bool = False
    in_report: bool = True
    in_comparison: bool = True


METRICS: dict[str, Metric] = {
    "ged": Metric(distances=_ged),
    "rest": Metric(
        distances=lambda d: (1 - d.p[:, : d.top].sum(dim=1)).clamp_min(0), in_comparison=False
    ),
    **{
        f"ged_{n}": Metric(distances=partial(_ged_n, n=n), in_comparison=n == MATCHED)
        for n in SAMPLES
    },
    f"hm_iou_{MATCHED}": Metric(distances=partial(_hm_iou_n, n=MATCHED), higher_is_better=True),
    "dice_top": Metric(lambda m: top_dice(m.s, m.ys, m.q), higher_is_better=True),
    **{
        f"coverage_{k}": Metric(
            distances=partial(_coverage, k=k), higher_is_better=True, in_comparison=k in (4, 16)
        )
        for k in FIRST
    },
    "presence": Metric(lambda m: presence(m.s, m.p), in_report=False),
    "annotated": Metric(lambda m: annotated(m.ys, m.q), in_report=False),
    "entropy": Metric(_entropy, in_report=False),
}
"""Every number of a slice, by the name of its column."""


# --- the evaluation -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RaterEvaluation:
    """The metrics of a model, slice by slice: a column for each of `METRICS` that is defined.

    `codes` is the number of codes in use, `answers` that of the answers or samples for a slice at
    most, `passes` that of forward passes for them, and `data` the digest of the prepared data.
    """

    id: tuple[str, ...]
    patient: tuple[str, ...]
    columns: dict[str, Float[Tensor, " b"]]
    codes: int
    answers: int
    passes: int
    split: Split
    data: str

    def intervals(self) -> dict[str, Interval]:
        """Every metric whose mean is meaningful, with its bootstrap interval over patients."""
        group = torch.from_numpy(np.unique(self.patient, return_inverse=True)[1])
        p, share = self.columns["presence"], self.columns["annotated"]
        values = {name: v for name, v in self.columns.items() if METRICS[name].in_report}
        values["presence brier"] = brier(p, share)
        rng = torch.Generator()  # seeded for each metric: all have the same resamples
        found = {
            name: interval(v, group, generator=rng.manual_seed(0)) for name, v in values.items()
        }
        found["presence ece"] = interval_of(
            lambda index: ece(p[index], share[index]).item(), group, generator=rng.manual_seed(0)
        )
        return found

    def report(self) -> dict[str, object]:
        """Every metric with its interval, the reliability of `presence`, and the counts."""
        found = {name: asdict(value) for name, value in self.intervals().items()}
        presence = {name: found.pop(f"presence {name}") for name in ("brier", "ece")}
        del presence["ece"]["std"]  # it is one number for all slices
        bins = reliability(self.columns["presence"], self.columns["annotated"])
        rows = zip(bins.count.tolist(), bins.predicted.tolist(), bins.share.tolist(), strict=True)
        shown = [{"count": int(n), "predicted": p, "annotated": s} for n, p, s in rows if n]
        return {
            "split": self.split,
            "data": self.data,
            "slices": len(self.id),
            "patients": len(set(self.patient)),
            "answers": self.answers,
            "passes": self.passes,
            **found,
            "presence": {**presence, "reliability": shown},
            "codes_in_use": self.codes,
        }

    def save_table(self, path: Path) -> None:
        """Write a CSV file with a line for each slice."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["id", "patient", *self.columns])
        rows = zip(*(v.tolist() for v in self.columns.values()), strict=True)
        for name, patient, values in zip(self.id, self.patient, rows, strict=True):
            table.writerow([name, patient, *(f"{v:.6g}" for v in values)])
        write_atomic(path, text.getvalue().encode())


def evaluate_raters(
    predictor: Predictor,
    data: str | Path,
    *,
    split: Split = "test",
    seed: int = 0,
    samples: int = 100,
    batch: int = 32,
    progress: Progress | None = None,
) -> RaterEvaluation:
    """Compare the answers to prepared slices with their raters. The model is not changed.

    Answers are probability maps cut at one half. `seed` is of the samples of `ged_n` and
    `hm_iou_n`. A model that samples gives `samples` answers: `ged` weighs them all equally,
    and `ged_n` takes the first n of them, which are n fresh samples.
    """
    check_data(predictor.config.data, data)
    prepared = open_prepared(data)
    source = Slices(prepared, split, device=predictor.device)
    k = samples if predictor.is_sampler else min(MAX_ANSWERS, predictor.max_answers)
    parts: list[Distances] = []
    found: dict[str, list[Tensor]] = {name: [] for name in METRICS}
    for case, h in propose_all(
        predictor, source, len(source), k, batch=batch, seed=seed, progress=progress
    ):
        masks = Masks(h.y > 0.5, h.normalized().prob, case.ys > 0.5, case.q, h)
        parts.append(_distances(masks, seed, keep_pairs=not predictor.is_sampler))
        for name, metric in METRICS.items():
            if metric.masks:
                found[name].append(metric.masks(masks).cpu())
    whole = _join(parts)
    columns = {
        name: metric.distances(whole) if metric.distances else torch.cat(found[name])
        for name, metric in METRICS.items()
    }
    answers = whole.p.shape[1]
    return RaterEvaluation(
        id=tuple(row.id for row in source.rows),
        patient=tuple(row.patient for row in source.rows),
        columns={name: values for name, values in columns.items() if values is not None},
        codes=codes_in_use(predictor.codes, whole.code, whole.p),
        answers=answers,
        passes=predictor.network.forward_passes(answers),
        split=split,
        data=prepared.digest,
    )


def _distances(m: Masks, seed: int, *, keep_pairs: bool) -> Distances:
    """The distances of a batch, on the CPU."""
    d, h = distances(m.s, m.ys), m.hypotheses
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
