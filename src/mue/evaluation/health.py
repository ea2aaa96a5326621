"""Health of a trained model: what is wrong with its codes or its prior, and what to do about it.

It is judged by inputs with known answers that were held back from training. The true probabilities
need not be known: the masks of four raters are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mue.data.source import Source
from mue.evaluation.answered import (
    IN_USE,
    MAX_ANSWERS,
    Progress,
    answer_log_likelihood,
    check_inputs,
    joint_distances,
    of_one_size,
    spaced_items,
    split_batches,
)
from mue.inference.predictor import SAMPLES, Predictor
from mue.metrics.bootstrap import Interval, interval
from mue.metrics.energy import energy_distance
from mue.metrics.modes import distinct, mode_probabilities, mode_tv
from mue.modes import MIN_PROB, Modes
from mue.types import Case, Hypotheses

INPUTS = 256
"""Held-back inputs that a model is judged by, and training inputs that they are compared with."""
MIN_UNITS = 5
"""Independent units, patients or inputs, below which probabilities and over-fitting are not judged:
a bootstrap interval over so few is far too narrow."""
DIFFERENT = 0.1
"""Share of the inputs with different known answers, from which on one code is too few."""
BLENDS = 0.1
"""Share of the inputs in which a code may be the most responsible one for different answers."""
ALIKE, MOSTLY = 0.1, 0.8
"""Codes are duplicates if their answers are closer than this share of the cut of the modes, for at
least this share of the inputs."""
DUPLICATES = 4
"""Number of duplicates that is named."""
MISSED = 0.25
"""Share of the known answers that may be unlike every answer of the model."""
UNCALIBRATED = 0.05
"""How far the probability of the first mode may be from the share of the answers that are in it."""
PRIOR_TV = 0.2
"""Total variation distance that the codes' prior and frequency may have, codes of one mode taken
together."""
MODE_TV, MODE_TV_P95 = 0.05, 0.1
"""Where probabilities are known: what `mode_tv` may be, its mean and its 95th percentile. For a
sampler as much is added as the shares of its samples may scatter by, 1 / sqrt(SAMPLES)."""
OVERFIT, OVERFIT_CUT = 0.5, 0.1
"""By how much the energy distance may be larger on held-back inputs: shares of that on training
inputs, and of the cut of the modes."""
_EXAMPLES = 3
_BATCH = 16
_TINY = 1e-6

Kind = Literal[
    "one code", "blend", "duplicates", "misses", "too sure", "too unsure", "prior", "over-fitting"
]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong: its kind, a sentence with its number, and a sentence on what to do.

    `codes` are the rows of the code book that it is about, if it is about single codes.
    """

    kind: Kind
    description: str
    remedy: str
    codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CodeHealth:
    """A code in use.

    Attributes:
        code: Row of the code book.
        prior: Mean of p(c | x).
        frequency: Mean of its responsibility p(c | x, y) for the known answers.
        reconstruction: Negative log-likelihood of the answers it is responsible for, in nats.
        blends: Share of the inputs in which it is the most responsible code for two known answers
            that are farther apart than the cut of the modes.
        duplicates: Other codes that have nearly the same answer to most inputs.
    """

    code: int
    prior: float
    frequency: float
    reconstruction: float
    blends: float
    duplicates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over inputs: its mean, and what it is at most for 95 % of them."""

    mean: float
    p95: float


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What is wrong with a model, and the numbers behind it.

    Attributes:
        findings: Empty where the model is healthy.
        codes: The codes in use, the most probable first; empty for a model without codes.
        inputs: Number of held-back inputs.
        notes: What could not be judged, and why.
        predicted: Mean probability of the first mode.
        observed: Mean share of the known answers that are nearest to the first mode.
        missed: Share of the known answers that are unlike every answer of the model.
        mode_tv: Total variation distance of the probabilities to the true ones, its mean and its
            95th percentile over the inputs; None where the true ones are not known.
        ged: Energy distance on held-back inputs.
        train_ged: The same on training inputs; None where it was not measured.
        case: A few held-back inputs whose answers differ.
        hypotheses: The answers to them.
    """

    findings: tuple[Finding, ...]
    codes: tuple[CodeHealth, ...]
    inputs: int
    notes: tuple[str, ...]
    predicted: float
    observed: float
    missed: float
    mode_tv: Spread | None
    ged: Interval
    train_ged: Interval | None
    case: Case
    hypotheses: Hypotheses

    @property
    def verdict(self) -> str:
        """One line."""
        found = ", ".join(dict.fromkeys(f.kind for f in self.findings))
        codes = f"codes in use: {len(self.codes)}" if self.codes else "a model without codes"
        if self.mode_tv is not None:
            codes += f"; mode_tv {self.mode_tv.mean:.3f}, 95th percentile {self.mode_tv.p95:.3f}"
        about = f"({codes}; held-back inputs: {self.inputs})"
        healthy = "healthy, as far as it was judged" if self.notes else "healthy"
        return f"found: {found} {about}" if found else f"{healthy} {about}"

    def report(self) -> dict[str, object]:
        """Everything but the examples, for JSON."""
        return {
            "verdict": self.verdict,
            "notes": list(self.notes),
            "findings": [{**asdict(f), "codes": list(f.codes)} for f in self.findings],
            "codes": [{**asdict(c), "duplicates": list(c.duplicates)} for c in self.codes],
            "inputs": self.inputs,
            "first_mode": {"predicted": self.predicted, "observed": self.observed},
            "missed": self.missed,
            "mode_tv": None if self.mode_tv is None else asdict(self.mode_tv),
            "ged": asdict(self.ged),
            "train_ged": None if self.train_ged is None else asdict(self.train_ged),
        }


def health(
    predictor: Predictor,
    source: Source,
    *,
    train: Source | None = None,
    inputs: int = INPUTS,
    progress: Progress | None = None,
) -> HealthReport:
    """Look for what is wrong with a model. The model is not changed.

    Args:
        predictor: The model.
        source: Inputs with known answers that it was not trained on.
        train: The inputs it was trained on, which over-fitting is found by.
        inputs: How many of each: at equal distances in a finite data set, otherwise the first.
        progress: Called with the number of inputs done, and of all.
    """
    check_inputs(inputs)
    held = _measure(predictor, source, inputs, progress)
    fitted = None if train is None else _measure(predictor, train, inputs, progress)
    codes = held.codes()
    ged, train_ged = held.interval(held.ged), fitted and fitted.interval(fitted.ged)
    findings, notes = [*_wrong_answers(held, codes)], [*_too_few(held, fitted)]
    if not findings and held.units >= MIN_UNITS:
        findings += _wrong_prior(held, predictor)
    findings += _duplicates(codes)
    if train_ged is not None and not notes and _overfits(train_ged, ged, predictor.cut):
        findings.append(
            Finding(
                "over-fitting",
                f"The energy distance to the known answers is {train_ged.mean:.3f} on training "
                f"inputs and {ged.mean:.3f} on held-back ones.",
                "Stop earlier (--train.patience, or fewer --train.steps), or train on more inputs, "
                "with more augmentation (--data.augment) or --train.weight-decay.",
            )
        )
    case = source.case(of_one_size(source, held.ambiguous())[:_EXAMPLES])
    k = min(MAX_ANSWERS, predictor.max_answers)
    return HealthReport(
        findings=tuple(findings),
        codes=codes,
        inputs=len(held.ged),
        notes=tuple(notes),
        predicted=held.predicted.mean().item(),
        observed=held.observed.mean().item(),
        missed=held.missed.mean().item(),
        mode_tv=held.of_known(),
        ged=ged,
        train_ged=train_ged,
        case=case.cpu(),
        hypotheses=predictor.propose(case.x, k, min_prob=_min_prob(k), normalized=True).cpu(),
    )


# --- measurements ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Measured:
    """Numbers of each input, and of each of the k codes that were decoded for it.

    `unit` is what is independent of one another, a patient or an input, and `unit_name` its name in
    the plural; `known` whether the known answers are all there are, by their probability, and not
    those of raters; `by_mode` the frequency, shared out among the codes of a mode as the prior does
    it; `alike` whether two codes have nearly the same answer. A code is -1 where it was not kept.
    """

    index: Int[Tensor, " b"]
    unit: Int[Tensor, " b"]
    unit_name: str
    category: tuple[str, ...]
    known: bool
    n: int
    ged: Float[Tensor, " b"]
    predicted: Float[Tensor, " b"]
    observed: Float[Tensor, " b"]
    missed: Float[Tensor, " b"]
    differ: Bool[Tensor, " b"]
    spread: Float[Tensor, " b"]
    tv: Float[Tensor, " b"]
    code: Int[Tensor, "b k"]
    prior: Float[Tensor, "b k"]
    frequency: Float[Tensor, "b k"]
    by_mode: Float[Tensor, "b k"]
    cost: Float[Tensor, "b k"]
    blends: Float[Tensor, "b k"]
    alike: Bool[Tensor, "b k k"]

    @property
    def units(self) -> int:
        """How many patients or inputs there are."""
        return len(self.unit.unique())

    def interval(self, values: Float[Tensor, " b"]) -> Interval:
        """The mean, with its bootstrap interval over patients or inputs."""
        return interval(values, self.unit, generator=torch.Generator().manual_seed(0))

    def of_known(self) -> Spread | None:
        """`mode_tv`, where the true probabilities are known."""
        return Spread(self.tv.mean().item(), self.tv.quantile(0.95).item()) if self.known else None

    def of_codes(self, values: Float[Tensor, "b k"]) -> Float[Tensor, " n"]:
        """The mean over the inputs for each code; a code that was not decoded has 0."""
        kept, sums = self.code >= 0, values.new_zeros(self.n)
        return sums.index_add(0, self.code[kept], values[kept]) / len(values)

    def codes(self) -> tuple[CodeHealth, ...]:
        """The codes in use, the most probable first."""
        prior, frequency, blends = map(self.of_codes, (self.prior, self.frequency, self.blends))
        cost = self.of_codes(self.cost) / frequency.clamp_min(_TINY)
        used = self.code[self.prior > IN_USE].unique()
        order = used[prior[used].argsort(descending=True, stable=True)].tolist()
        duplicates = self._duplicates(used)
        return tuple(
            CodeHealth(
                code=c,
                prior=prior[c].item(),
                frequency=frequency[c].item(),
                reconstruction=cost[c].item(),
                blends=blends[c].item(),
                duplicates=tuple(d for d in order if d in duplicates[c]),
            )
            for c in order
        )

    def _duplicates(self, used: Int[Tensor, " u"]) -> dict[int, set[int]]:
        """For each code those that have nearly the same answer to most inputs, if both are used.

        Only pairs that occur are counted: of many codes they are a small part of all pairs.
        """
        kept = torch.isin(self.code, used)
        both = (kept[:, :, None] & kept[:, None]).nonzero(as_tuple=True)
        i, j, k = both
        pair, which = (self.code[i, j] * self.n + self.code[i, k]).unique(return_inverse=True)
        share = which.bincount(self.alike[both].double()) / which.bincount()
        found: dict[int, set[int]] = {c: set() for c in used.tolist()}
        for p in pair[share >= MOSTLY].tolist():
            c, d = divmod(p, self.n)
            if c != d:
                found[c].add(d)
        return found

    def ambiguous(self) -> Int[Tensor, " b"]:
        """The items by how much their answers differ, the first of each category before others."""
        order = self.spread.argsort(descending=True, stable=True).tolist()
        first = {self.category[i]: i for i in reversed(order)}
        return self.index[sorted(order, key=lambda i: i != first[self.category[i]])]


def _min_prob(k: int) -> float:
    """Of several hundred codes most are not in use and need not be decoded."""
    return MIN_PROB if k == MAX_ANSWERS else 0.0


@torch.inference_mode()
def _measure(
    predictor: Predictor, source: Source, inputs: int, progress: Progress | None
) -> _Measured:
    index = spaced_items(source, inputs)
    k = SAMPLES if predictor.is_sampler else min(MAX_ANSWERS, predictor.max_answers)
    generator = torch.Generator().manual_seed(0)
    found: list[tuple[Tensor, ...]] = []
    names: list[tuple[str, str]] = []
    known = patients = False
    for items in split_batches(source, index, _BATCH):
        case = source.case(items)
        h = predictor.propose(
            case.x, k, min_prob=_min_prob(k), generator=generator, normalized=True
        )
        sy, ss, yy = joint_distances(predictor, h, case)
        modes = predictor.group(h)
        of_input = _of_inputs(predictor, case, h, modes, sy, ss, yy)
        of_codes = _of_codes(predictor, case, h, modes, ss, yy)
        found.append(tuple(t.cpu() for t in (*of_input, *of_codes)))
        names += zip(case.id, case.group, strict=True)
        known, patients = case.known, case.patients
        if progress is not None:
            progress(len(names), len(index))
    unit = np.unique([name[patients] for name in names], return_inverse=True)[1]
    return _Measured(
        index,
        torch.from_numpy(unit),
        "patients" if patients else "inputs",
        tuple("" if patients else category for _, category in names),
        known,
        predictor.codes,
        *(torch.cat(t) for t in zip(*found, strict=True)),
    )


def _of_inputs(
    predictor: Predictor,
    case: Case,
    h: Hypotheses,
    modes: Modes,
    sy: Tensor,
    ss: Tensor,
    yy: Tensor,
) -> tuple[Tensor, ...]:
    """The numbers of `_Measured` that a model without codes has, too: from `ged` on."""
    p, q, cut = h.normalized().prob, case.q, predictor.cut
    nearest, answer = sy.where(modes.mode[..., None] >= 0, torch.inf).min(dim=1)
    first = modes.mode.gather(1, answer) == 0
    true = distinct(yy, q)
    return (
        energy_distance(sy, ss, yy, p, q),
        modes.prob[:, 0],
        (first * q).sum(dim=1),
        ((nearest > cut) * q).sum(dim=1),
        _different(yy, q, cut).any(dim=2).any(dim=1),
        torch.einsum("bk,bkl,bl->b", p, ss, p),
        mode_tv(mode_probabilities(h.y, h.prob, case.ys, true), true),
    )


def _different(
    yy: Float[Tensor, "b m m"], q: Float[Tensor, "b m"], cut: float
) -> Bool[Tensor, "b m m"]:
    """Whether two known answers are farther apart than the modes' cut."""
    return (yy > cut) & (q > 0)[:, None] & (q > 0)[:, :, None]


def _of_codes(
    predictor: Predictor,
    case: Case,
    h: Hypotheses,
    modes: Modes,
    ss: Float[Tensor, "b k k"],
    yy: Float[Tensor, "b m m"],
) -> tuple[Tensor, ...]:
    """The numbers of `_Measured` that each code has, from `code` on: none without codes."""
    if not predictor.codes:
        none = h.prob[:, :0]
        return (none.long(), *[none] * 5, ss[:, :0, :0].bool())
    q, log_y = case.q, answer_log_likelihood(h, case.ys, predictor.config.objective)
    score = h.prob.log()[:, :, None] + log_y
    weight = score.softmax(dim=1) * q[:, None]
    answer = score.argmax(dim=1)
    together = _different(yy, q, predictor.cut) & (answer[:, :, None] == answer[:, None])
    blends = torch.zeros_like(h.prob).scatter_reduce(1, answer, together.any(dim=2).float(), "amax")
    frequency = weight.sum(dim=2)
    same = (modes.mode[:, :, None] == modes.mode[:, None]).to(frequency)
    of_mode = torch.einsum("bkl,bl->bk", same, frequency) * h.prob
    by_mode = of_mode / torch.einsum("bkl,bl->bk", same, h.prob).clamp_min(_TINY)
    cost = -(weight * log_y).sum(dim=2)
    code = h.code.where(h.prob > 0, -1)
    return code, h.prob, frequency, by_mode, cost, blends, ss <= ALIKE * predictor.cut


# --- findings -------------------------------------------------------------------------------------


_AGAIN = (
    "Train again with another --train.seed, with more steps (--train.steps) or more codes "
    "(--codebook.size)."
)


def _too_few(held: _Measured, train: _Measured | None) -> Iterator[str]:
    """What cannot be judged because a mean over a few patients or inputs may be chance."""
    if held.units < MIN_UNITS:
        what = "the probabilities" + ("" if train is None else " and over-fitting")
        yield f"{held.units} held-back {held.unit_name} are too few to judge {what}"
    elif train is not None and train.units < MIN_UNITS:
        yield f"{train.units} training {train.unit_name} are too few to judge over-fitting"


def _wrong_answers(held: _Measured, codes: Sequence[CodeHealth]) -> Iterator[Finding]:
    """Codes that stand for several answers, and answers that no code has."""
    differ, missed = held.differ.float().mean().item(), held.missed.mean().item()
    blends = [c for c in codes if c.blends > BLENDS]
    if len(codes) == 1 and differ > DIFFERENT:
        yield Finding(
            "one code",
            f"All answers come from code {codes[0].code}, and the known answers to {differ:.0%} of "
            "the inputs differ by more than the cut of the modes.",
            _AGAIN,
            (codes[0].code,),
        )
        return
    for c in blends:
        yield Finding(
            "blend",
            f"Code {c.code} stands for different known answers to the same input, for "
            f"{c.blends:.0%} of the inputs.",
            _AGAIN,
            (c.code,),
        )
    if missed > MISSED and not blends:
        yield Finding(
            "misses",
            f"{missed:.0%} of the known answers are unlike every answer of the model.",
            "Train with more steps (--train.steps) or a larger network (--model.levels), and look "
            "at the answers (`mue figure`).",
        )


def _duplicates(codes: Sequence[CodeHealth]) -> Iterator[Finding]:
    """Codes that have the same answer, each in a finding once."""
    named: set[int] = set()
    used = {c.code for c in codes if c.prior >= IN_USE}
    for c in codes:
        group = sorted(({c.code, *c.duplicates} & used) - named)
        if c.code in group and len(group) >= DUPLICATES:
            named.update(group)
            yield Finding(
                "duplicates",
                f"{len(group)} codes have the same answer to most inputs: "
                f"{', '.join(map(str, group))}.",
                "The probability of their mode is their sum; for codes that differ train with "
                "another --train.seed or fewer codes (--codebook.size).",
                tuple(group),
            )


def _wrong_prior(held: _Measured, predictor: Predictor) -> Iterator[Finding]:
    """Probabilities that are not the shares of the known answers."""
    calibrate = "Run `mue calibrate`, which fits the probabilities to held-back inputs."
    if not predictor.codes or predictor.kind == "vectors":
        calibrate = "Train on more inputs or stop earlier: this model cannot be calibrated."
    elif predictor.config.modes.coverage:
        calibrate = "Train on more inputs or stop earlier: this model is calibrated already."
    gap = held.predicted - held.observed
    bias, known = held.interval(gap), held.of_known()
    scatter = SAMPLES**-0.5 if predictor.is_sampler else 0.0
    prior, by_mode = held.of_codes(held.prior), held.of_codes(held.by_mode)
    tv = mode_tv(prior[None], by_mode[None]).item()
    if bias.low > UNCALIBRATED or bias.high < -UNCALIBRATED:
        yield Finding(
            "too sure" if bias.mean > 0 else "too unsure",
            f"The first mode has a mean probability of {held.predicted.mean():.3f}, and "
            f"{held.observed.mean():.3f} of the known answers are nearest to it.",
            calibrate,
        )
    elif known is not None and (
        known.mean > MODE_TV + scatter or known.p95 > MODE_TV_P95 + scatter
    ):
        yield Finding(
            "prior",
            f"The total variation distance of the probabilities to the true ones has a mean of "
            f"{known.mean:.3f} and is above {known.p95:.3f} for 5% of the inputs.",
            "Train with more steps (--train.steps) or another --train.seed.",
        )
    elif predictor.codes and tv > PRIOR_TV:
        yield Finding(
            "prior",
            "The prior of the codes and their frequency, taken together where they have one mode, "
            f"have a total variation distance of {tv:.3f}.",
            calibrate,
        )


def _overfits(train: Interval, held: Interval, cut: float) -> bool:
    """Whether held-back inputs are answered clearly worse than training inputs."""
    gap = held.mean - train.mean
    return held.low > train.high and gap > max(OVERFIT * train.mean, OVERFIT_CUT * cut)
