"""A predictor and slices that several raters drew, turned into numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mue.atomic import write_atomic
from mue.data.prepared.dataset import Slices
from mue.data.prepared.splits import Split
from mue.data.prepared.store import open_prepared
from mue.errors import MueError
from mue.evaluation.known_modes import IN_USE, MOST, NEGLIGIBLE, note_codes_
from mue.inference.predictor import Predictor
from mue.metrics.calibration import brier, drawn, ece, presence, reliability
from mue.metrics.energy import distances, draws, empirical, energy_distance
from mue.metrics.interval import interval, interval_of
from mue.metrics.matching import hm_iou
from mue.metrics.overlap import top_dice
from mue.types import Hypotheses

TOP = 16
"""Answers that `ged` weighs, renormalised."""
DRAWS = (16, 32, 50, 100)
"""Numbers of draws that the literature reports."""
MATCHED = 16
"""Draws that are matched to the raters."""
FIRST = (1, 4, 8, 16)
"""How many answers a reader may look at before finding a rater's own."""


@dataclass(frozen=True, slots=True)
class RaterEvaluation:
    """What a model says about slices, slice by slice.

    Attributes:
        id: Name of each slice.
        patient: Whom it shows.
        ged: Energy distance of the top 16 answers, renormalised, and the raters.
        rest: Probability beyond these answers.
        ged_n: The same for n answers drawn by their probability.
        hm_iou_n: Hungarian-matched IoU of those n answers.
        dice: Dice of the most probable answer, mean over raters.
        coverage: Share of raters who find their mask (IoU of at least 0.5) in the first k answers.
        presence: Predicted probability that there is a lesion.
        drawn: Share of raters who drew one.
        entropy: Of the distinct answers, in nats: those that overlap by half are one.
        codes: Codes in use: more probable than 1 % for some slice.
        answers: Answers to each slice, at the most; the samples of a model that draws.
        passes: How often the network looked at a slice for them.
        split: Which patients.
        data: Digest of the prepared data.
    """

    id: tuple[str, ...]
    patient: tuple[str, ...]
    ged: Float[Tensor, " b"]
    rest: Float[Tensor, " b"]
    ged_n: dict[int, Float[Tensor, " b"]]
    hm_iou_n: dict[int, Float[Tensor, " b"]]
    dice: Float[Tensor, " b"]
    coverage: dict[int, Float[Tensor, " b"]]
    presence: Float[Tensor, " b"]
    drawn: Float[Tensor, " b"]
    entropy: Float[Tensor, " b"]
    codes: int
    answers: int
    passes: int
    split: Split
    data: str

    def columns(self) -> dict[str, Float[Tensor, " b"]]:
        """Every number of every slice, by its name."""
        return {
            "ged": self.ged,
            "rest": self.rest,
            **{f"ged_{n}": v for n, v in self.ged_n.items()},
            **{f"hm_iou_{n}": v for n, v in self.hm_iou_n.items()},
            "dice_top": self.dice,
            **{f"coverage_{k}": v for k, v in self.coverage.items()},
            "presence": self.presence,
            "drawn": self.drawn,
            "entropy": self.entropy,
        }

    def report(self) -> dict[str, object]:
        """What `report.json` holds: every metric with its interval over patients."""
        names = sorted(set(self.patient))
        number = {name: i for i, name in enumerate(names)}
        group = torch.tensor([number[p] for p in self.patient])

        def of(values: Tensor) -> dict[str, float]:
            return asdict(interval(values, group, generator=torch.Generator().manual_seed(0)))

        def miscalibration(index: Tensor) -> float:
            return ece(self.presence[index], self.drawn[index]).item()

        error = asdict(
            interval_of(miscalibration, group, generator=torch.Generator().manual_seed(0))
        )
        del error["std"]  # it is one number for all slices
        bins = reliability(self.presence, self.drawn)
        own = {k: v for k, v in self.columns().items() if k not in ("presence", "drawn", "entropy")}
        return {
            "split": self.split,
            "data": self.data,
            "slices": len(self.id),
            "patients": len(names),
            "answers": self.answers,
            "passes": self.passes,
            **{name: of(values) for name, values in own.items()},
            "presence": {
                "brier": of(brier(self.presence, self.drawn)),
                "ece": error,
                "reliability": [
                    {"count": int(n), "predicted": p, "drawn": s}
                    for n, p, s in zip(
                        bins.count.tolist(),
                        bins.predicted.tolist(),
                        bins.share.tolist(),
                        strict=True,
                    )
                    if n
                ],
            },
            "codes_in_use": self.codes,
        }

    def save_table(self, path: Path) -> None:
        """Write a line for each slice, for those who want to look closer."""
        text = io.StringIO()
        table, columns = csv.writer(text, lineterminator="\n"), self.columns()
        table.writerow(["id", "patient", *columns])
        rows = zip(*(v.tolist() for v in columns.values()), strict=True)
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
    watch: Callable[[int, int], None] | None = None,
) -> RaterEvaluation:
    """Judge a model by the raters of prepared slices.

    Answers are probability maps cut at one half. `seed` is of the draws of `ged_n` and `hm_iou_n`.
    A model that samples is asked for `samples` answers: `ged` weighs them all equally, and `ged_n`
    takes the first n of them, which are n fresh draws.
    `watch` is told how many slices are done, of how many. The model is not changed.
    """
    if predictor.config.data.name != "slices":
        raise MueError(
            f"this model answers {predictor.config.data.name!r}, and {data} holds slices; "
            "take a model trained on slices, or leave out --data"
        )
    prepared = open_prepared(data)
    source = Slices(prepared, split, device=predictor.device)
    k = samples if predictor.is_sampler else min(MOST, predictor.max_answers)
    parts = list(_judge(predictor, source, k, seed, batch, watch))
    k = max(part.p.shape[1] for part in parts)
    more = [k - part.p.shape[1] for part in parts]  # batches differ in how many they decoded
    p = torch.cat([F.pad(part.p, (0, m)) for part, m in zip(parts, more, strict=True)])
    q = torch.cat([part.q for part in parts])
    sy = torch.cat([F.pad(x.sy, (0, 0, 0, m), value=1) for x, m in zip(parts, more, strict=True)])
    ss = torch.cat([F.pad(x.ss, (0, m, 0, m), value=1) for x, m in zip(parts, more, strict=True)])
    sy = sy.masked_fill((p == 0)[:, :, None], 1)  # what was not kept covers nobody
    yy = torch.cat([part.yy for part in parts])
    top = k if predictor.is_sampler else min(TOP, k)
    kept = p[:, :top] / p[:, :top].sum(dim=1, keepdim=True)
    pick = {n: _pick(p, n, seed, fresh=predictor.is_sampler) for n in DRAWS}
    pick = {n: i for n, i in pick.items() if i is not None}
    if predictor.is_sampler:
        ged = torch.cat([part.first[k] for part in parts])
        ged_n = {n: torch.cat([part.first[n] for part in parts]) for n in pick}
    else:
        ged = energy_distance(sy[:, :top], ss[:, :top, :top], yy, kept, q)
        ged_n = {n: energy_distance(sy, ss, yy, empirical(i, k), q) for n, i in pick.items()}
    rows = torch.arange(len(p))[:, None]
    found = {n: (1 - sy[:, :n]).amax(dim=1) >= 0.5 for n in FIRST}
    used = torch.zeros(predictor.codes + 1)
    for part in parts:
        note_codes_(used, part.code, part.p)
    return RaterEvaluation(
        id=tuple(row.id for row in source.rows),
        patient=tuple(row.patient for row in source.rows),
        ged=ged,
        rest=(1 - p[:, :top].sum(dim=1)).clamp_min(0),
        ged_n=ged_n,
        hm_iou_n={n: hm_iou((1 - sy)[rows, pick[n]]) for n in pick if n == MATCHED},
        dice=torch.cat([part.dice for part in parts]),
        coverage={n: (f * q).sum(dim=1) for n, f in found.items()},
        presence=torch.cat([part.presence for part in parts]),
        drawn=torch.cat([part.drawn for part in parts]),
        entropy=torch.cat([part.entropy for part in parts]),
        codes=int((used[:-1] > IN_USE).sum()),
        answers=k,
        passes=predictor.network.forward_passes(k),
        split=split,
        data=prepared.digest,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A batch of slices: all that the metrics need, without the pixels.

    Of samples, which may be a thousand, not the distances of all pairs are kept but the energy
    distance of the first n.
    """

    sy: Float[Tensor, "b k m"]
    ss: Float[Tensor, "b k2 k2"]
    first: dict[int, Float[Tensor, " b"]]
    yy: Float[Tensor, "b m m"]
    p: Float[Tensor, "b k"]
    q: Float[Tensor, "b m"]
    code: Tensor
    dice: Float[Tensor, " b"]
    presence: Float[Tensor, " b"]
    drawn: Float[Tensor, " b"]
    entropy: Float[Tensor, " b"]


def _pick(p: Float[Tensor, "b k"], n: int, seed: int, *, fresh: bool) -> Int[Tensor, "b n"] | None:
    """N draws of the answers; of fresh samples the first n, or nothing where they are fewer."""
    if not fresh:
        return draws(p, n, torch.Generator().manual_seed(seed))
    return torch.arange(n).expand(len(p), -1) if n <= p.shape[1] else None


def _judge(
    predictor: Predictor,
    source: Slices,
    most: int,
    seed: int,
    batch: int,
    watch: Callable[[int, int], None] | None,
) -> Iterator[_Part]:
    generator = torch.Generator().manual_seed(seed)
    for first in range(0, len(source), batch):
        last = min(first + batch, len(source))
        case = source.case(torch.arange(first, last))
        h = predictor.propose(case.x, most, min_prob=NEGLIGIBLE, generator=generator)
        s, ys = h.y > 0.5, case.ys > 0.5
        d, k, q = distances(s, ys), s.shape[1], case.q.cpu()
        sy, ss, yy = d.sy.cpu(), d.ss.cpu(), d.yy.cpu()
        counts = [n for n in {*DRAWS, k} if n <= k] if predictor.is_sampler else []
        equal = {n: torch.full((len(q), n), 1 / n) for n in counts}
        yield _Part(
            sy=sy.clone(),
            ss=ss[:, :0, :0].clone() if predictor.is_sampler else ss,
            first={
                n: energy_distance(sy[:, :n], ss[:, :n, :n], yy, p, q) for n, p in equal.items()
            },
            yy=yy.clone(),
            p=h.prob.cpu(),
            q=q,
            code=h.code.cpu(),
            dice=top_dice(s, ys, case.q).cpu(),
            presence=presence(s, h.normalized().prob).cpu(),
            drawn=drawn(ys, case.q).cpu(),
            entropy=_first(h, MOST).merge(below=0.5).entropy().cpu(),
        )
        if watch is not None:
            watch(last, len(source))


def _first(h: Hypotheses, k: int) -> Hypotheses:
    """At most k of the answers: enough to see how many are distinct."""
    return Hypotheses(h.y[:, :k], h.prob[:, :k], h.code[:, :k]).normalized()
