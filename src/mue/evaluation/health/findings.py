"""What is wrong with a model, by the numbers of its inputs and codes, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mue.evaluation.health.measured import CodeHealth, Measured
from mue.inference.predictor import MODE_SAMPLES, Predictor
from mue.metrics.bootstrap import Interval
from mue.metrics.modes import mode_tv

MIN_UNITS = 5
"""Independent units, patients or inputs, below which probabilities and over-fitting are not judged:
a bootstrap interval over so few is far too narrow."""
DIFFERENT = 0.1
"""Share of the inputs with different known answers, from which on one code is too few."""
BLENDS = 0.1
"""Share of the inputs in which a code may be the most responsible one for different answers."""
DUPLICATES, DUPLICATE_PRIOR = 4, 0.01
"""Number of duplicates that is named, and the mean prior from which on a code counts as one."""
MISSED = 0.25
"""Share of the known answers that may be unlike every answer of the model."""
UNCALIBRATED = 0.05
"""How far the probability of the first mode may be from the share of the answers that are in it."""
PRIOR_TV = 0.2
"""Total variation distance that the codes' prior and frequency may have, codes of one mode taken
together."""
MODE_TV, MODE_TV_P95 = 0.05, 0.1
"""Where probabilities are known: what `mode_tv` may be, its mean and its 95th percentile. For a
sampler as much is added as the shares of its samples may scatter by, 1 / sqrt(MODE_SAMPLES)."""
OVERFIT, OVERFIT_CUT = 0.5, 0.1
"""By how much the energy distance may be larger on held-back inputs: shares of that on training
inputs, and of the cut of the modes."""

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


def find(
    held: Measured, train: Measured | None, codes: Sequence[CodeHealth], predictor: Predictor
) -> tuple[list[Finding], list[str]]:
    """What is wrong, and notes on what cannot be judged."""
    findings, notes = [*_wrong_answers(held, codes)], [*_too_few(held, train)]
    if not findings and held.units >= MIN_UNITS:
        findings += _wrong_prior(held, predictor)
    findings += _duplicates(codes)
    if train is not None and not notes:
        findings += _over_fitting(train.interval(train.ged), held.interval(held.ged), predictor.cut)
    return findings, notes


_AGAIN = (
    "Train again with another --train.seed, with more steps (--train.steps) or more codes "
    "(--codebook.size)."
)


def _too_few(held: Measured, train: Measured | None) -> Iterator[str]:
    """What cannot be judged because a mean over a few patients or inputs may be chance."""
    if held.units < MIN_UNITS:
        what = "the probabilities" + ("" if train is None else " and over-fitting")
        yield f"{held.units} held-back {held.unit_name} are too few to judge {what}"
    elif train is not None and train.units < MIN_UNITS:
        yield f"{train.units} training {train.unit_name} are too few to judge over-fitting"


def _wrong_answers(held: Measured, codes: Sequence[CodeHealth]) -> Iterator[Finding]:
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
    used = {c.code for c in codes if c.prior >= DUPLICATE_PRIOR}
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


def _wrong_prior(held: Measured, predictor: Predictor) -> Iterator[Finding]:
    """Probabilities that are not the shares of the known answers."""
    calibrate = "Run `mue calibrate`, which fits the probabilities to held-back inputs."
    if not predictor.codes or predictor.kind == "vectors":
        calibrate = "Train on more inputs or stop earlier: this model cannot be calibrated."
    elif predictor.config.modes.coverage:
        calibrate = "Train on more inputs or stop earlier: this model is calibrated already."
    gap = held.predicted - held.observed
    bias, known = held.interval(gap), held.of_known()
    scatter = MODE_SAMPLES**-0.5 if predictor.is_sampler else 0.0
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


def _over_fitting(train: Interval, held: Interval, cut: float) -> Iterator[Finding]:
    """Held-back inputs that are answered clearly worse than training inputs."""
    gap = held.mean - train.mean
    if held.low > train.high and gap > max(OVERFIT * train.mean, OVERFIT_CUT * cut):
        yield Finding(
            "over-fitting",
            f"The energy distance to the known answers is {train.mean:.3f} on training "
            f"inputs and {held.mean:.3f} on held-back ones.",
            "Stop earlier (--train.patience, or fewer --train.steps), or train on more inputs, "
            "with more augmentation (--data.augment) or --train.weight-decay.",
        )
