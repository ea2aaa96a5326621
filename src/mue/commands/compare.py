"""`mue compare`: several models on the same inputs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mue.commands.models import Model, digest_of, load_models
from mue.commands.progress import Progress, progress_of
from mue.commands.report import check_report, save_report
from mue.data.build import check_data
from mue.data.prepared.open import open_prepared, verify_prepared
from mue.data.prepared.splits import Split
from mue.evaluation.compare import SAMPLE_COUNTS, ComparedModel, best, compare_models
from mue.evaluation.curves import CURVE_INPUTS, Point, sample_curve
from mue.evaluation.speed import single_pass
from mue.inference.load import find
from mue.modes import By
from mue.runs.folder import commit
from mue.runs.weights import weights_digest
from mue.runtime.atomic import check_folder, transaction
from mue.runtime.devices import Device, device_name
from mue.version import __version__

_OUT = "runs/compare"


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """Models in the order given, what `comparison.json` holds, and the files written."""

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
    samples: Sequence[int] = SAMPLE_COUNTS,
    by: By = "mode",
    out: str | Path = _OUT,
    device: Device = "auto",
    progress: Progress | None = None,
) -> ComparisonResult:
    """Evaluate models on the same inputs, and write `comparison.json` and `comparison.png`.

    Every model is loaded in float32 and without CUDA graphs, so that the speeds are comparable;
    predictors must be alike in both.
    Where inputs are synthetic and a model samples in one forward pass, `samples.png` shows how many
    samples it takes to approximate the true probabilities.

    Args:
        models: Bundled models, run folders, or predictors, two or more.
        data: Folder of prepared slices, for models that were trained on slices.
        split: Which part of the data.
        inputs: How many inputs, where they are synthetic.
        seed: Of synthetic inputs, and of samples.
        samples: How many samples are taken of a model that samples; each number is a row.
        by: Whether what is ranked are modes, or single codes and samples (slices).
        out: Folder for the files. A comparison there of other models, data or settings is
            replaced by default, and refused in a folder that is named.
        device: Where to compute.
        progress: Called with the name of a row, the number of inputs done, and of all.
    """
    from mue.plots.comparison import plot_comparison
    from mue.plots.sample_curve import plot_sample_curve
    from mue.plots.style import save_figure

    began, folder = time.monotonic(), Path(out)
    check_folder(folder)
    loaded = load_models(models, device=device, plain=True)
    predictors = {model.name: model.predictor for model in loaded}
    for predictor in predictors.values():
        check_data(predictor.config.data, data)
    if data is not None:
        verify_prepared(data)
    identity: dict[str, Any] = {
        "models": list(map(digest_of, loaded)),
        "data": None if data is None else open_prepared(data).digest,
        "split": split,
        "seed": seed,
        "samples": list(samples),
        **({"inputs": inputs} if data is None else {"by": by}),
    }
    if folder != Path(_OUT):
        check_report(folder / "comparison.json", identity)
    found = compare_models(
        predictors,
        data=data,
        split=split,
        inputs=inputs,
        seed=seed,
        samples=samples,
        by=by,
        progress=progress,
    )
    title = f"{inputs} {split} inputs"
    about: dict[str, Any] = {"split": split, "inputs": inputs}
    curve_inputs, curves = min(inputs, CURVE_INPUTS), dict[str, list[Point]]()
    if data is not None:
        title = f"{split} slices of {Path(data).name}"
        about = {"split": split, "data": identity["data"], "by": by}
    elif any(p.is_sampler and single_pass(p) for p in predictors.values()):
        for name, predictor in predictors.items():
            if single_pass(predictor):
                show = progress_of(f"{name}, curve", progress)
                curves[name] = sample_curve(
                    predictor, split=split, inputs=curve_inputs, seed=seed, progress=show
                )
    first = loaded[0].predictor
    content: dict[str, Any] = {
        **about,
        "seed": seed,
        "evaluated_with": {
            "version": __version__,
            "commit": commit(),
            "torch": torch.__version__,
            "device": first.device.type,
            "name": device_name(first.device),
            "threads": torch.get_num_threads(),
            "precision": "half" if first.half else "float32",
            "cuda_graph": first.cuda_graph,
            "seconds": round(time.monotonic() - began, 1),
        },
        "identity": identity,
        "weights": {m.name: weights_digest(find(m.source)) for m in loaded if m.source is not None},
        "models": [model.summary() for model in found],
        "best": {metric: found[i].name for metric, i in best(found).items()},
    }
    if curves:
        points = {name: [dataclasses.asdict(p) for p in curve] for name, curve in curves.items()}
        content["curves"] = {"inputs": curve_inputs, **points}
    with transaction():
        files = [
            save_report(folder / "comparison.json", content),
            save_figure(plot_comparison(found, f"{title}, seed {seed}"), folder / "comparison.png"),
        ]
        if curves:
            title = f"mode_tv by number of answers, {curve_inputs} {split} inputs"
            files.append(save_figure(plot_sample_curve(curves, title), folder / "samples.png"))
    return ComparisonResult(found, content, tuple(files))
