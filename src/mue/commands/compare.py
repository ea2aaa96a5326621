"""`mue compare`: several models on the same inputs."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mue.commands.report import Model, Progress, load_models, save_report
from mue.data.prepared.splits import Split
from mue.data.prepared.store import open_prepared
from mue.devices import Device, device_name
from mue.evaluation.compare import (
    CURVE_INPUTS,
    SAMPLES,
    ComparedModel,
    Point,
    best,
    compare_models,
    sample_curve,
    single_pass,
)
from mue.inference.load import find
from mue.inference.predictor import Predictor
from mue.training import checkpoint
from mue.training.checkpoint import weights_digest
from mue.version import __version__


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """Models side by side.

    Attributes:
        models: In the order they were given.
        report: What `comparison.json` holds.
        files: What was written.
    """

    models: list[ComparedModel]
    report: dict[str, Any]
    files: tuple[Path, ...]


def compare(
    models: Sequence[Model],
    *,
    data: str | Path | None = None,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    samples: Sequence[int] = SAMPLES,
    out: str | Path = "runs/compare",
    device: Device = "auto",
    progress: Progress | None = None,
) -> ComparisonResult:
    """Evaluate models on the same inputs, and write `comparison.json` and `comparison.png`.

    Every model is computed in float32 and without CUDA graphs, so that the speeds are comparable.
    Where inputs are synthetic and a model samples in one forward pass, `samples.png` shows how many
    samples it takes to come near the true probabilities.

    Args:
        models: Bundled models, run folders, or predictors, two or more.
        data: Folder of prepared slices, for models that were trained on slices.
        split: Which part of the data.
        inputs: How many inputs, where they are synthetic.
        seed: Of synthetic inputs, and of samples.
        samples: How many samples are taken of a model that samples; each number is a row.
        out: Folder for the files.
        device: Where to compute.
        progress: Called with the name of a row, the number of inputs done, and of all.
    """
    began = time.monotonic()
    loaded = load_models(models, device=device, plain=True)
    predictors = {model.name: model.predictor for model in loaded}
    found = compare_models(
        predictors,
        data=data,
        split=split,
        inputs=inputs,
        seed=seed,
        samples=samples,
        progress=progress,
    )
    curve_inputs = min(inputs, CURVE_INPUTS)
    curves = _curves(predictors, split, curve_inputs, seed, progress) if data is None else {}
    about: dict[str, Any] = {"split": split}
    about |= {"inputs": inputs} if data is None else {"data": open_prepared(data).digest}
    first = loaded[0].predictor
    content: dict[str, Any] = {
        **about,
        "seed": seed,
        "evaluated_with": {
            "version": __version__,
            "commit": checkpoint.commit(),
            "torch": torch.__version__,
            "device": first.device.type,
            "name": device_name(first.device),
            "threads": torch.get_num_threads(),
            "precision": "half" if first.half else "float32",
            "cuda_graph": False,
            "seconds": round(time.monotonic() - began, 1),
        },
        "weights": {m.name: weights_digest(find(m.source)) for m in loaded if m.source is not None},
        "models": [model.summary() for model in found],
        "best": {metric: found[i].name for metric, i in best(found).items()},
    }
    if curves:
        points = {name: [dataclasses.asdict(p) for p in curve] for name, curve in curves.items()}
        content["curves"] = {"inputs": curve_inputs, **points}
    where = f"{inputs} {split} inputs" if data is None else f"{split} slices of {Path(data).name}"
    files = _write(found, curves, content, f"{where}, seed {seed}", Path(out))
    return ComparisonResult(found, content, tuple(files))


def _curves(
    predictors: dict[str, Predictor],
    split: Split,
    inputs: int,
    seed: int,
    progress: Progress | None,
) -> dict[str, list[Point]]:
    """The error by the number of samples, where some model samples in one forward pass."""
    chosen = {name: p for name, p in predictors.items() if single_pass(p)}
    if not any(p.is_sampler for p in chosen.values()):
        return {}
    return {
        name: sample_curve(
            predictor,
            split=split,
            inputs=inputs,
            seed=seed,
            progress=functools.partial(progress, f"{name}, curve") if progress else None,
        )
        for name, predictor in chosen.items()
    }


def _write(
    models: list[ComparedModel],
    curves: dict[str, list[Point]],
    content: dict[str, Any],
    title: str,
    out: Path,
) -> list[Path]:
    from mue.plots.comparison import plot_comparison, plot_sample_curve
    from mue.plots.style import save_figure

    files = [
        save_report(out / "comparison.json", content),
        save_figure(plot_comparison(models, title), out / "comparison.png"),
    ]
    if curves:
        inputs = f"{content['curves']['inputs']} {content['split']} inputs"
        files.append(
            save_figure(
                plot_sample_curve(curves, f"mode_tv by number of answers, {inputs}"),
                out / "samples.png",
            )
        )
    return files
