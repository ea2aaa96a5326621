"""Health of a trained model: what is wrong with its codes or its prior, and what to do about it.

It is judged by inputs with known answers that were held back from training. The true probabilities
need not be known: the masks of four raters are enough.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from mue.data.source import Source
from mue.evaluation.answered import MAX_ANSWERS, Progress, answered
from mue.evaluation.health.findings import Finding, find
from mue.evaluation.health.measured import (
    CodeHealth,
    Measured,
    Measuring,
    Spread,
    min_prob,
)
from mue.evaluation.items import check_inputs, of_one_size
from mue.inference.predictor import Predictor
from mue.metrics.bootstrap import Interval
from mue.types import Case, Hypotheses

INPUTS = 256
"""Held-back inputs that a model is judged by, and training inputs that they are compared with."""
_EXAMPLES = 3


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
    held: Measuring | None = None,
    progress: Progress | None = None,
) -> HealthReport:
    """Look for what is wrong with a model. The model is not changed.

    Args:
        predictor: The model.
        source: Inputs with known answers that it was not trained on.
        train: The inputs it was trained on, which over-fitting is found by.
        inputs: How many of each: at equal distances in a finite data set, otherwise the first.
        held: The numbers of `source`, where an evaluation that answered it has collected them.
        progress: Called with the number of inputs done, and of all.
    """
    check_inputs(inputs)
    found = _measured(predictor, source, inputs, progress) if held is None else held.measured()
    fitted = None if train is None else _measured(predictor, train, inputs, progress)
    codes = found.codes()
    findings, notes = find(found, fitted, codes, predictor)
    case = source.case(of_one_size(source, found.ambiguous())[:_EXAMPLES])
    k = min(MAX_ANSWERS, predictor.max_answers)
    h = predictor.propose(case.x, k, min_prob=min_prob(k), normalized=True)
    return HealthReport(
        findings=tuple(findings),
        codes=codes,
        inputs=len(found.ged),
        notes=tuple(notes),
        predicted=found.predicted.mean().item(),
        observed=found.observed.mean().item(),
        missed=found.missed.mean().item(),
        mode_tv=found.of_known(),
        ged=found.interval(found.ged),
        train_ged=None if fitted is None else fitted.interval(fitted.ged),
        case=case.cpu(),
        hypotheses=h.cpu(),
    )


def _measured(
    predictor: Predictor, source: Source, inputs: int, progress: Progress | None
) -> Measured:
    collected = Measuring(predictor, source, inputs)
    for batch in answered(predictor, source, collected.request, progress=progress):
        collected.add_(batch)
    return collected.measured()
