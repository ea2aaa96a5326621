"""Several models on the same inputs, by the same metrics, through the same `Hypotheses`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mue.data.build import build_source, check_shapes
from mue.data.prepared.splits import Split
from mue.errors import MueError
from mue.evaluation.columns import METRICS
from mue.evaluation.items import spaced_items, split_batches
from mue.evaluation.known import evaluate_modes
from mue.evaluation.raters import evaluate_raters
from mue.evaluation.speed import seconds_for, single_pass
from mue.inference.predictor import MAX_SAMPLES, Predictor
from mue.metrics.bootstrap import Interval
from mue.modes import By

SAMPLE_COUNTS = (16, 100, 1000)
"""How many samples are taken of a model that samples."""
_TIMED = 8  # inputs in a batch when the speed is measured, or as many as have one size


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """A model in a comparison; one that samples has a row for each number of samples.

    `samples` is None for a model that ranks its answers. `passes` are the forward passes for the
    answers to an input, `per_second` the answers per second, measured on this machine. `difference`
    is each metric minus that of the first model, input by input; empty for the first itself.
    """

    model: str
    method: str
    samples: int | None
    answers: int
    passes: int
    parameters: int
    per_second: float
    metrics: dict[str, Interval]
    difference: dict[str, Interval] = dataclasses.field(default_factory=dict[str, Interval])

    @property
    def name(self) -> str:
        """The model, and how many samples."""
        return _name(self.model, self.samples)

    def summary(self) -> dict[str, Any]:
        """As `mue compare --json` prints it; what is not known is left out."""
        content = dataclasses.asdict(self)
        for table in (content["metrics"], content["difference"]):
            for name, values in table.items():
                table[name] = {k: v for k, v in values.items() if not math.isnan(v)}
        return content


def _name(model: str, samples: int | None) -> str:
    plural = "s" if samples != 1 else ""
    return model if samples is None else f"{model}, {samples} sample{plural}"


def metrics_of(models: Sequence[ComparedModel]) -> list[str]:
    """Every metric that some model has, in order: `ged_16` takes 16 samples at least."""
    return list(dict.fromkeys(name for model in models for name in model.metrics))


def higher_is_better(metric: str) -> bool:
    """Whether more of a metric is better."""
    return metric in METRICS and METRICS[metric].higher_is_better


def best(models: Sequence[ComparedModel]) -> dict[str, int]:
    """Index of the best model by each metric; in a tie the first."""

    def error(i: int, metric: str) -> float:
        found = models[i].metrics.get(metric)
        sign = -1 if higher_is_better(metric) else 1
        return math.inf if found is None else sign * found.mean

    return {m: min(range(len(models)), key=partial(error, metric=m)) for m in metrics_of(models)}


def compare_models(
    predictors: Mapping[str, Predictor],
    *,
    data: str | Path | None = None,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    samples: Sequence[int] = SAMPLE_COUNTS,
    by: By = "mode",
    progress: Callable[[str, int, int], None] | None = None,
) -> list[ComparedModel]:
    """Evaluate models on the same inputs, and measure how fast they answer.

    `samples` says how many samples are taken of a model that samples, each number a row of its
    own. A model that needs a forward pass for each sample (dropout) takes part with the smallest
    number alone: the others would take hours. `progress` is called with the name of a row, the
    number of inputs that are done, and of all.
    """
    _check_comparable(predictors, samples)
    first = next(iter(predictors.values()))
    task = dataclasses.replace(first.config.data, answers=1)
    source = build_source(task, split, seed=0, device=first.device, data=data, resident="off")
    timed = source.case(next(split_batches(source, spaced_items(source, _TIMED), _TIMED)))
    for predictor in predictors.values():
        check_shapes(predictor.config, timed, predictor.network.axes)
    hidden = {name for name, metric in METRICS.items() if not metric.in_comparison}
    found: list[ComparedModel] = []
    reference: Any = None  # the evaluation of the first model, of the same kind as the others
    for model, predictor in predictors.items():
        counts = samples if single_pass(predictor) else (min(samples),)
        for count in counts if predictor.is_sampler else (None,):
            report = partial(progress, _name(model, count)) if progress else None
            about: dict[str, Any] = {"split": split, "seed": seed, "progress": report}
            if data is None:
                scores = evaluate_modes(predictor, inputs=inputs, k=count or 16, **about)
            else:
                batch = max(1, 512 // (count or 16))
                about |= {"samples": count or 1, "batch": batch, "by": by}
                scores = evaluate_raters(predictor, data, **about)
            difference = {} if reference is None else scores.difference(reference)
            reference = reference or scores
            answers = count or min(16, predictor.max_answers)
            found.append(
                ComparedModel(
                    model=model,
                    method=predictor.config.method,
                    samples=count,
                    answers=answers,
                    passes=predictor.network.forward_passes(answers),
                    parameters=sum(p.numel() for p in predictor.network.parameters()),
                    per_second=len(timed.x) * answers / seconds_for(predictor, timed.x, answers),
                    metrics={n: v for n, v in scores.intervals().items() if n not in hidden},
                    difference={n: v for n, v in difference.items() if n not in hidden},
                )
            )
    return found


def _check_comparable(predictors: Mapping[str, Predictor], samples: Sequence[int]) -> None:
    """Refuse models that answer different questions, or that are not computed alike.

    A comparison of speed is fair only where all models have the same precision and device, and all
    or none are captured as CUDA graphs.
    """
    if len(predictors) < 2:
        raise MueError(f"a comparison needs at least two different models, got {len(predictors)}")
    if not samples or min(samples) < 1 or max(samples) > MAX_SAMPLES:
        raise MueError(f"`samples` must be numbers in 1..{MAX_SAMPLES}, got {list(samples)}")
    (first, ours), *others = predictors.items()
    for name, other in others:
        for what, mine, theirs in (
            ("the task", ours.config.data.name, other.config.data.name),
            ("the size of digits", ours.config.data.digit, other.config.data.digit),
            ("channels of an input", ours.config.model.c_in, other.config.model.c_in),
            ("channels of an answer", ours.config.model.c_out, other.config.model.c_out),
            ("the device", ours.device, other.device),
            ("half precision", ours.half, other.half),
            ("CUDA graphs", ours.cuda_graph, other.cuda_graph),
        ):
            if mine != theirs:
                raise MueError(
                    f"models must answer the same question to be compared: {what} is {mine} for "
                    f"{first} and {theirs} for {name}"
                )
