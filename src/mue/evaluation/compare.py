"""Models side by side: the same inputs, the same metrics, through the same `Hypotheses`."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mue.data.build import build_source, check_shapes
from mue.data.prepared.dataset import Slices
from mue.data.prepared.splits import Split
from mue.data.prepared.store import open_prepared
from mue.devices import Device
from mue.errors import MueError
from mue.evaluation.known_modes import evaluate_modes
from mue.evaluation.raters import evaluate_raters
from mue.inference.load import load
from mue.inference.predictor import MAX_SAMPLES, Predictor
from mue.metrics.interval import Interval, interval
from mue.metrics.modes import mode_mae, mode_tv, nearest_mode

SAMPLES = (16, 100, 1000)
"""How many answers are drawn from a model that samples."""
HIGHER = frozenset({"hm_iou_16", "dice_top", "coverage_4", "coverage_16"})
"""Metrics of which more is better; of all others less is."""
COUNTS = tuple(2**i for i in range(13))
"""Numbers of samples of a curve: 1, 2, 4, …, 4096."""
CURVE_INPUTS = 100
"""Inputs that a curve is the mean of."""
_LESIONS = ("ged", "ged_16", "hm_iou_16", "dice_top", "coverage_4", "coverage_16")
_TIMED = 8  # inputs answered at once when the speed is measured


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """A model in a comparison; one that samples takes part once for each number of samples.

    Attributes:
        model: Its name.
        method: How it was trained.
        samples: Answers that were drawn, or None for a model that ranks its answers.
        answers: Answers to each input.
        passes: How often the network looks at an input for them.
        parameters: Numbers it consists of.
        per_second: Answers a second, measured on this machine.
        metrics: Each with its interval.
    """

    model: str
    method: str
    samples: int | None
    answers: int
    passes: int
    parameters: int
    per_second: float
    metrics: dict[str, Interval]

    @property
    def name(self) -> str:
        """What tells it apart from the others."""
        return _name(self.model, self.samples)

    def summary(self) -> dict[str, Any]:
        """As `mue compare --json` prints it; what is not known is left out."""
        content = asdict(self)
        for name, values in content["metrics"].items():
            content["metrics"][name] = {k: v for k, v in values.items() if not math.isnan(v)}
        return content


def _name(model: str, samples: int | None) -> str:
    if samples is None:
        return model
    return f"{model}, {samples} sample{'s' if samples > 1 else ''}"


def metrics_of(rivals: Sequence[ComparedModel]) -> list[str]:
    """Every metric that some rival has, in order: `ged_16` takes 16 samples at least."""
    return list(dict.fromkeys(name for rival in rivals for name in rival.metrics))


def best(rivals: Sequence[ComparedModel]) -> dict[str, int]:
    """Which rival is ahead in each metric, by its number in the row; in a tie the first."""
    found: dict[str, int] = {}
    for metric in metrics_of(rivals):
        sign = -1 if metric in HIGHER else 1
        means = {
            i: sign * r.metrics[metric].mean for i, r in enumerate(rivals) if metric in r.metrics
        }
        found[metric] = min(means, key=means.__getitem__)
    return found


def compare(
    models: Sequence[str | Path],
    *,
    data: str | Path | None = None,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    samples: Sequence[int] = SAMPLES,
    device: Device = "auto",
    watch: Callable[[str, int, int], None] | None = None,
) -> list[ComparedModel]:
    """Judge models on the same inputs.

    `samples` says how many answers are drawn from a model that samples; each number is a rival of
    its own. A model that must look at an input again for each sample (dropout) takes part with the
    smallest number alone: with the others it would take hours. `watch` is told the name of a
    rival, how many inputs are done, and of how many.
    """
    predictors = load_models(models, data=data, split=split, samples=samples, device=device)
    rivals: list[ComparedModel] = []
    for model, predictor in predictors.items():
        for count in _counts(predictor, samples):
            name = _name(model, count)

            def tell(done: int, total: int = inputs, name: str = name) -> None:
                if watch is not None:
                    watch(name, done, total)

            if data is None:
                metrics = _on_game(predictor, inputs, seed, count, tell)
            else:
                metrics = _on_slices(predictor, data, split, seed, count, tell)
            answers = count or min(16, predictor.max_answers)
            rivals.append(
                ComparedModel(
                    model=model,
                    method=predictor.config.method,
                    samples=count,
                    answers=answers,
                    passes=predictor.network.forward_passes(answers),
                    parameters=sum(p.numel() for p in predictor.network.parameters()),
                    per_second=_speed(predictor, answers, data, split),
                    metrics=metrics,
                )
            )
    return rivals


def names_of(models: Sequence[str | Path]) -> dict[str, str]:
    """Each model by the last part of its path, or by the whole of it where two end alike."""
    each = list(dict.fromkeys(map(str, models)))
    short = [Path(model).name for model in each]
    return dict(zip(short if len(set(short)) == len(each) else each, each, strict=True))


def load_models(
    models: Sequence[str | Path],
    *,
    data: str | Path | None = None,
    split: Split = "test",
    samples: Sequence[int] = SAMPLES,
    device: Device = "auto",
) -> dict[str, Predictor]:
    """The models by their names, or a clear word on why they cannot be compared."""
    names = names_of(models)
    if len(names) < 2:
        raise MueError(f"a comparison needs at least two different models, got {len(names)}")
    for count in samples or (0,):
        if not 1 <= count <= MAX_SAMPLES:
            raise MueError(f"`samples` must be numbers in 1..{MAX_SAMPLES}, got {list(samples)}")
    found = {name: load(model, device=device) for name, model in names.items()}
    (first, ours), *others = found.items()
    for name, other in others:
        for what, mine, theirs in (
            ("the task", ours.config.data.name, other.config.data.name),
            ("the size of digits", ours.config.data.digit, other.config.data.digit),
            ("channels of an input", ours.config.model.c_in, other.config.model.c_in),
            ("channels of an answer", ours.config.model.c_out, other.config.model.c_out),
        ):
            if mine != theirs:
                raise MueError(
                    f"models must answer the same question to be compared: {what} is {mine} for "
                    f"{first} and {theirs} for {name}"
                )
    one = dataclasses.replace(ours.config.data, answers=1)
    source = build_source(one, split, seed=0, device=ours.device, data=data, resident="off")
    for predictor in found.values():
        check_shapes(predictor.config, source, predictor.network.axes)
    return found


def _counts(predictor: Predictor, samples: Sequence[int]) -> Sequence[int | None]:
    if not predictor.is_sampler:
        return (None,)
    return samples if one_look(predictor) else (min(samples),)


def one_look(predictor: Predictor) -> bool:
    """Whether one look at an input will do for all of its answers."""
    return predictor.network.forward_passes(2) == 1


def _on_game(
    predictor: Predictor,
    inputs: int,
    seed: int,
    samples: int | None,
    tell: Callable[[int], None],
) -> dict[str, Interval]:
    judged = evaluate_modes(predictor, inputs=inputs, seed=seed, k=samples or 16, watch=tell)
    tv, mae = mode_tv(judged.predicted, judged.true), mode_mae(judged.predicted, judged.true)
    return {"mode_tv": _interval(tv), "mode_mae": _interval(mae)}


def _interval(values: Tensor) -> Interval:
    """Over inputs that are drawn independently of one another."""
    each = torch.arange(len(values))
    return interval(values, each, generator=torch.Generator().manual_seed(0))


def _on_slices(
    predictor: Predictor,
    data: str | Path,
    split: Split,
    seed: int,
    samples: int | None,
    tell: Callable[[int, int], None],
) -> dict[str, Interval]:
    batch = 32 if samples is None else max(1, 512 // samples)
    judged = evaluate_raters(
        predictor, data, split=split, seed=seed, samples=samples or 1, batch=batch, watch=tell
    )
    content: dict[str, Any] = judged.report()
    found = {m: Interval(**content[m]) for m in _LESIONS if m in content}
    for name in ("brier", "ece"):
        found[f"presence {name}"] = Interval(**{"std": math.nan, **content["presence"][name]})
    return found


def _speed(predictor: Predictor, answers: int, data: str | Path | None, split: Split) -> float:
    """Answers a second."""
    index = torch.arange(_TIMED)
    if data is None:
        source = build_source(predictor.config.data, "test", seed=0, device=predictor.device)
        x = source.case(index.to(predictor.device)).x
    else:
        slices = Slices(open_prepared(data), split, device=predictor.device)
        x = slices.case(index % len(slices)).x
    return len(x) * answers / _seconds(predictor, x, answers)


def _seconds(predictor: Predictor, x: Tensor, answers: int) -> float:
    """How long the answers take: the fastest of three tries or more after one that does not count.

    What takes milliseconds is tried for a fifth of a second, or a neighbour's job would count.
    """
    took: list[float] = []
    while len(took) < 4 or sum(took) < 0.2:
        began = time.perf_counter()
        predictor.propose(x, answers)
        if predictor.device.type == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return min(took[1:])


# --- how many samples it takes --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """How near the truth a model comes with so many answers, and how long it takes.

    Attributes:
        answers: To each input: samples, or what a ranking is cut at.
        mode_tv: Total variation distance to the true probabilities, mean over inputs.
        seconds: For the answers to one input, measured on this machine.
    """

    answers: int
    mode_tv: float
    seconds: float


def sample_curve(
    predictor: Predictor,
    *,
    counts: Sequence[int] = COUNTS,
    inputs: int = CURVE_INPUTS,
    seed: int = 0,
    watch: Callable[[int, int], None] | None = None,
) -> list[Point]:
    """How near the truth the frequencies of a sampler come with more and more samples.

    The largest number is drawn once, and its first n are the n samples. A model that ranks its
    answers has one point: its top 16.
    """
    if inputs < 1:
        raise MueError(f"`inputs` must be at least 1, got {inputs}")
    if not predictor.is_sampler:
        counts = (min(16, predictor.max_answers),)
    source = build_source(predictor.config.data, "test", seed=seed, device=predictor.device)
    generator = torch.Generator().manual_seed(seed)
    tv: dict[int, list[Tensor]] = {n: [] for n in sorted(set(counts))}
    for i in range(inputs):
        case = source.case(torch.tensor([i], device=predictor.device))
        h = predictor.propose(case.x, max(counts), generator=generator)
        mode = F.one_hot(nearest_mode(h.y, case.ys), case.q.shape[1])
        for n, found in tv.items():
            weight = (
                h.prob[:, :n] if not predictor.is_sampler else torch.full_like(h.prob[:, :n], 1 / n)
            )
            p = (mode[:, :n] * weight[:, :, None]).sum(dim=1)
            found.append(mode_tv(p, case.q).cpu())
        if watch is not None:
            watch(i + 1, inputs)
    x = source.case(torch.tensor([0], device=predictor.device)).x
    return [
        Point(n, torch.cat(found).mean().item(), _seconds(predictor, x, n))
        for n, found in tv.items()
    ]


# --- what a density says --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LatentSamples:
    """Samples of a Probabilistic U-Net for inputs whose modes are known.

    Attributes:
        mode: The true mode that each sample is nearest to.
        log_density: Of the latent behind it, relative to the highest there is for its input.
        true: Probability of each mode.
        group: Category of each input.
    """

    mode: Int[Tensor, "b k"]
    log_density: Float[Tensor, "b k"]
    true: Float[Tensor, "b m"]
    group: tuple[str, ...]

    def frequency(self) -> Float[Tensor, "b m"]:
        """Share of the samples of each input that is nearest to each mode."""
        return F.one_hot(self.mode, self.true.shape[1]).float().mean(dim=1)


def latent_samples(
    predictor: Predictor, *, inputs: int = 1000, k: int = 16, seed: int = 0
) -> LatentSamples:
    """Draw k samples for each test input, with their modes and the densities of their latents."""
    source = build_source(predictor.config.data, "test", seed=seed, device=predictor.device)
    generator = torch.Generator().manual_seed(seed)
    mode: list[Tensor] = []
    density: list[Tensor] = []
    true: list[Tensor] = []
    group: list[str] = []
    for index in torch.arange(inputs, device=predictor.device).split(50):
        case = source.case(index)
        found = predictor.densities(case.x, k, generator=generator)
        mode.append(nearest_mode(found.y, case.ys).cpu())
        density.append(found.log_density.cpu())
        true.append(case.q.cpu())
        group.extend(case.group)
    return LatentSamples(torch.cat(mode), torch.cat(density), torch.cat(true), tuple(group))
