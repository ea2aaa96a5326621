"""Evaluation against raters: slices that several people have annotated."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mue.data.build import check_data
from mue.data.prepared.open import open_prepared
from mue.data.prepared.splits import Split
from mue.evaluation.answered import MAX_ANSWERS, Judge, Progress, Request, answered
from mue.evaluation.columns import METRICS, Columns, Masks, masks_of_case
from mue.evaluation.conformal import covered
from mue.evaluation.items import split_of_data
from mue.evaluation.measures import codes_in_use
from mue.inference.masks import class_names
from mue.inference.predictor import MODE_SAMPLES, Predictor
from mue.metrics.bootstrap import Interval, interval, interval_of
from mue.metrics.calibration import Reliability, brier, ece, reliability
from mue.metrics.ranked import mode_shares, ranked_before, up_to
from mue.modes import By
from mue.runtime.atomic import write_atomic

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
    samples: int = MODE_SAMPLES,
    batch: int = 32,
    also: Judge | None = None,
    progress: Progress | None = None,
) -> RaterEvaluation:
    """Compare the answers to prepared slices with their raters. The model is not changed.

    Answers are probability maps cut at one half. `seed` is of the samples of `ged_n` and
    `hm_iou_n`. A model that samples gives `samples` answers: `ged` weighs them all equally,
    and `ged_n` takes the first n of them, which are n fresh samples. What is said of modes is said
    of single answers where these are ranked `by` code. `also` is given the answers to its slices,
    of the same split.
    """
    check_data(predictor.config.data, data)
    prepared = open_prepared(data)
    source = split_of_data(predictor, prepared, split)
    k = samples if predictor.is_sampler else min(MAX_ANSWERS, predictor.max_answers)
    grouped, keep_pairs = list[tuple[Tensor, ...]](), not predictor.is_sampler
    everything = Columns(seed, keep_pairs=keep_pairs)
    classes = {
        name: Columns(seed, keep_pairs=keep_pairs, by_class=True)
        for name in _class_names(predictor)
    }
    request = Request(torch.arange(len(source), device=source.device), k, batch=batch, seed=seed)
    for each in answered(predictor, source, request, also=also, progress=progress):
        masks = masks_of_case(predictor, each.case, each.h, by)
        everything.add_(masks)
        for i, of_class in enumerate(classes.values()):
            of_class.add_(masks.of_class(i))
        grouped.append(_raters_in_modes(masks))
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
    return class_names(config)


def _raters_in_modes(m: Masks) -> tuple[Tensor, Tensor, Tensor]:
    """Probability of each mode, share of the raters in it, and `ranked_before` of each rater."""
    prob, mode = m.modes.prob, m.modes.mode
    share = mode_shares(m.rater_mode, m.q, prob.shape[1])
    return prob.cpu(), share.cpu(), ranked_before(m.iou, mode, prob, m.at_least).cpu()
