"""Whole jobs, each a function of the same name as its command: predict, compare, demo."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mue.atomic import write_atomic
from mue.data.build import build_source
from mue.data.prepared.splits import Split
from mue.data.prepared.store import open_prepared
from mue.devices import Device, choose_device, device_name
from mue.errors import MueError
from mue.evaluation.compare import (
    CURVE_INPUTS,
    SAMPLES,
    ComparedModel,
    Point,
    best,
    latent_samples,
    load_models,
    names_of,
    one_look,
    sample_curve,
)
from mue.evaluation.compare import compare as compare_models
from mue.evaluation.known_modes import ModeEvaluation, evaluate_modes
from mue.evaluation.raters import RaterEvaluation
from mue.inference.files import read_image
from mue.inference.load import find, load
from mue.inference.predictor import Predictor
from mue.models.probunet import ProbUNet
from mue.plots.answers import plot_answers, plot_points
from mue.plots.comparison import plot_comparison, plot_sample_curve
from mue.plots.history import plot_history
from mue.plots.probabilities import plot_densities, plot_probabilities
from mue.plots.style import save_figure, save_image
from mue.training import checkpoint
from mue.training.checkpoint import (
    RunError,
    load_config,
    origin,
    weights_digest,
)
from mue.training.log import read_log
from mue.types import Hypotheses
from mue.version import __version__

_EXAMPLES = 6  # inputs shown in a figure of answers


def require_empty(folder: Path) -> None:
    """Refuse a folder that holds files."""
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} must be empty or not exist yet, and it holds files")


# --- export -------------------------------------------------------------------------------------


def export(model: str | Path, out: str | Path, *, half: bool = True) -> Path:
    """Put what inference needs, θ and its configuration, into a folder of its own, with the log.

    In half precision a model is half as large; `evaluate` both to see whether the numbers hold.
    """
    folder, target = find(model), Path(out)
    require_empty(target)
    checkpoint.export(folder, target, half=half)
    return target


# --- evaluate -----------------------------------------------------------------------------------


def report(model: str | Path, evaluation: ModeEvaluation | RaterEvaluation) -> dict[str, Any]:
    """What `report.json` holds: the model, what it was made with, and every metric."""
    folder = find(model)
    return {
        "model": str(model),
        "method": load_config(folder).method,
        "weights": weights_digest(folder),
        "trained_with": origin(folder),
        "evaluated_with": {"version": __version__, "torch": torch.__version__},
        **evaluation.report(),
    }


def home(model: str | Path) -> Path:
    """Where what is made of a model goes: its run folder, or `runs/NAME` if it is bundled."""
    folder = find(model)
    return folder if Path(model) == folder else Path("runs") / str(model)


def save_report(path: Path, content: dict[str, Any]) -> None:
    """Write a report as a person would want to read it."""
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())


# --- predict ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answers to one image file.

    Attributes:
        image: The file.
        x: What the model was shown.
        hypotheses: A batch of one.
    """

    image: Path
    x: Tensor
    hypotheses: Hypotheses

    def summary(self) -> dict[str, Any]:
        """Probabilities and codes, as `mue predict --json` prints them."""
        h = self.hypotheses
        answers = [
            {"rank": i + 1, "prob": h.prob[0, i].item(), "code": int(h.code[0, i])}
            for i in range(h.prob.shape[1])
        ]
        return {
            "image": str(self.image),
            "answers": answers,
            "rest": h.rest[0].item(),
            "entropy": h.entropy()[0].item(),
        }


def predict(
    model: str | Path,
    images: Sequence[str | Path],
    *,
    k: int | None = None,
    merge: bool = False,
    out: str | Path | None = None,
    device: Device = "auto",
) -> list[Prediction]:
    """Answer image files; every file is read before the first answer is given or written.

    With `out`, each answer is written as a PNG, and an overview beside them.
    """
    if not images:
        raise MueError("`images` must name at least one image file, got none")
    predictor = load(model, device=device)
    pixels = [read_image(path, predictor.config.model.c_in) for path in images]
    found: list[Prediction] = []
    for path, x in zip(images, pixels, strict=True):
        h = predictor.propose(x, k)
        found.append(Prediction(Path(path), x, h.merge() if merge else h))
    if out is not None:
        _write_predictions(found, Path(out))
    return found


def _write_predictions(found: list[Prediction], out: Path) -> None:
    require_empty(out)
    if len({p.image.stem for p in found}) < len(found):
        raise MueError("`images` must have different names where answers are written to a folder")
    for prediction in found:
        h, stem = prediction.hypotheses, prediction.image.stem
        for j in range(h.prob.shape[1]):
            save_image(h.y[0, j], out / f"{stem}-{j + 1}.png")
        overview = plot_answers(prediction.x[None], h, prediction.image.name)
        save_figure(overview, out / f"{stem}-answers.png")


# --- figure -------------------------------------------------------------------------------------


def figure(
    model: str | Path,
    *,
    out: str | Path | None = None,
    evaluation: ModeEvaluation | None = None,
    device: Device = "auto",
) -> list[Path]:
    """Draw a model's answers and probabilities; returns where the pictures are.

    They go to `figures/` of the run, or for a bundled model to `runs/NAME/figures`. The
    probabilities of a model that samples are frequencies; those of a Probabilistic U-Net are drawn
    beside the densities of its latents, too.
    """
    folder, predictor = find(model), load(model, device=device)
    target = Path(out) if out else home(model) / "figures"
    many = predictor.is_sampler and one_look(predictor)
    evaluation = evaluation or evaluate_modes(predictor, k=100 if many else 16)
    name = Path(model).name
    title = f"{name}: {len(evaluation.group)} test inputs, seed {evaluation.seed}"
    if predictor.is_sampler:
        title += f", {evaluation.k} samples each"
    drawn = [save_figure(plot_probabilities(evaluation, title), target / "modes.png")]
    if isinstance(predictor.network, ProbUNet):
        seen = latent_samples(predictor, inputs=len(evaluation.group), seed=evaluation.seed)
        about = f"{name}: {len(seen.group)} test inputs, {seen.mode.shape[1]} samples each"
        drawn.append(save_figure(plot_densities(seen, about), target / "densities.png"))
    drawn += _draw_examples(predictor, name, target)
    if history := read_log(folder):
        drawn.append(save_figure(plot_history(history, name), target / "history.png"))
    return drawn


def _draw_examples(predictor: Predictor, name: str, target: Path) -> list[Path]:
    """The first inputs of each category with their answers."""
    source = build_source(predictor.config.data, "test", seed=0, device=predictor.device)
    case = source.case(torch.arange(64, device=predictor.device))
    groups = sorted(set(case.group))
    first = [case.group.index(g) for g in groups]
    if predictor.network.axes == 1 and predictor.codes:
        h = predictor.propose(case.x[first], predictor.max_answers)
        merged = h.merge(torch.cdist, below=0.5).cpu()
        drawing = plot_points(case.x[first].cpu(), merged, case.ys[first].cpu(), name)
        return [save_figure(drawing, target / "answers.png")]
    more = [i for i in range(64) if i not in first][: _EXAMPLES - len(first)]
    drawn: list[Path] = []
    kind = "samples" if predictor.is_sampler else "top" if predictor.codes else "answers"
    for top, rows in ((4, first), (6, [*first, *more])):
        k = min(top, predictor.max_answers)
        h = predictor.propose(case.x[rows], k).cpu()
        about = f"{name}: top {k}" if predictor.codes else f"{name}: {k} {kind}, not ranked"
        names = [case.group[i] for i in rows]
        drawing = plot_answers(case.x[rows].cpu(), h, about, names)
        drawn.append(save_figure(drawing, target / f"{kind}-{top}.png"))
    return drawn


# --- compare ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """Models side by side.

    Attributes:
        models: In the order they were given.
        content: What `comparison.json` holds.
        files: What was written.
    """

    models: list[ComparedModel]
    content: dict[str, Any]
    files: list[Path]


def compare(
    models: Sequence[str | Path],
    *,
    data: str | Path | None = None,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    samples: Sequence[int] = SAMPLES,
    out: str | Path = "runs/compare",
    device: Device = "auto",
    watch: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """Judge models on the same inputs, and write and draw how they stand.

    Where the inputs are made up and a model samples in one look, it is also drawn how many samples
    it takes to come near the truth. `watch` is told what is done, how much of it, and of how much.
    """
    began, where = time.monotonic(), choose_device(device)
    options: dict[str, Any] = {"data": data, "samples": samples, "device": device}
    rivals = compare_models(models, split=split, inputs=inputs, seed=seed, watch=watch, **options)
    curves: dict[str, list[Point]] = {}
    predictors = load_models(models, **options) if data is None else {}
    if any(p.is_sampler and one_look(p) for p in predictors.values()):
        for name, predictor in predictors.items():
            if one_look(predictor):
                tell = functools.partial(watch, f"{name}, curve") if watch else None
                few = min(inputs, CURVE_INPUTS)
                curves[name] = sample_curve(predictor, inputs=few, seed=seed, watch=tell)
    about = (
        {"inputs": inputs} if data is None else {"data": open_prepared(data).digest, "split": split}
    )
    ahead = {metric: rivals[i].name for metric, i in best(rivals).items()}
    content: dict[str, Any] = {
        **about,
        "seed": seed,
        "evaluated_with": {
            "version": __version__,
            "commit": checkpoint.commit(),
            "torch": torch.__version__,
            "device": where.type,
            "name": device_name(where),
            "threads": torch.get_num_threads(),
            "seconds": round(time.monotonic() - began, 1),
        },
        "weights": {name: weights_digest(find(m)) for name, m in names_of(models).items()},
        "models": [rival.summary() for rival in rivals],
        "best": ahead,
    }
    if curves:
        points = {name: [dataclasses.asdict(p) for p in curve] for name, curve in curves.items()}
        content["curves"] = {"inputs": min(inputs, CURVE_INPUTS), **points}
    target = Path(out)
    asked = f"{inputs} test inputs" if data is None else f"{split} slices of {Path(data).name}"
    title = f"{asked}, seed {seed}"
    files = [target / "comparison.json"]
    save_report(files[0], content)
    drawing = plot_comparison(rivals, title)
    files.append(save_figure(drawing, target / "comparison.png"))
    if curves:
        about_curve = f"mode_tv by number of answers, {min(inputs, CURVE_INPUTS)} test inputs"
        drawing = plot_sample_curve(curves, about_curve)
        files.append(save_figure(drawing, target / "samples.png"))
    return Comparison(rivals, content, files)


# --- demo ---------------------------------------------------------------------------------------

DEMO = ("guess", "guess-exact")
"""The models that the demonstration shows: the paper's method, and ours."""


def demo(
    out: str | Path = "runs/demo",
    *,
    watch: Callable[[str, int], None] | None = None,
    inputs: int = 1000,
) -> dict[str, dict[str, Any]]:
    """Judge the bundled models on the guessing game, draw their answers, return their reports."""
    folder = Path(out)
    reports: dict[str, dict[str, Any]] = {}
    for model in DEMO:
        predictor = load(model, device="cpu")
        tell = functools.partial(watch, model) if watch else None
        judged = evaluate_modes(predictor, inputs=inputs, seed=0, watch=tell)
        figure(model, out=folder / "figures" / model, evaluation=judged, device="cpu")
        reports[model] = report(model, judged)
    save_report(folder / "report.json", reports)
    return reports
