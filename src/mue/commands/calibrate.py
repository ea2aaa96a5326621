"""`mue calibrate`: probabilities that fit inputs the model was not trained on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mue.commands.models import load_models
from mue.commands.progress import Progress, progress_of
from mue.data.build import build_source, check_data
from mue.data.prepared.open import open_prepared, verify_prepared
from mue.data.source import Source
from mue.errors import MueError
from mue.evaluation.answered import Progress as InputsProgress
from mue.evaluation.calibrate import COVERAGE, Calibration, fit_calibration
from mue.evaluation.items import check_inputs, split_of_data
from mue.inference.load import find
from mue.inference.predictor import Predictor
from mue.metrics.ranked import AT_LEAST
from mue.models.modal import Modal
from mue.runs.weights import export_run
from mue.runtime.atomic import check_new_folder, new_folder
from mue.runtime.devices import Device

INPUTS = 1000
"""Inputs that a model of generated data is calibrated on."""


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """The change of the prior, a folder that can be loaded as a run folder, the files in it."""

    calibration: Calibration
    folder: Path
    files: tuple[Path, ...]


def calibrate(
    model: str | os.PathLike[str],
    out: str | Path,
    *,
    data: str | Path | None = None,
    coverage: Sequence[float] = COVERAGE,
    iou: float = AT_LEAST,
    inputs: int = INPUTS,
    seed: int = 0,
    half: bool = True,
    device: Device = "auto",
    progress: Progress | None = None,
) -> CalibrationResult:
    """Fit a model's probabilities and modes to the val split, and write it to a new folder.

    Training makes a model overconfident: it has seen the answers to its inputs many times. The
    inputs of val are new to it, and those of test stay untouched. Found are the probabilities, the
    level at which answers are grouped into modes, and how many modes must be shown so that they
    hold the answer of a new rater with a given probability.

    Args:
        model: A bundled model, or a run folder.
        out: The new folder.
        data: Folder of prepared slices, for a model that was trained on slices.
        coverage: Shares of new raters whose answer is to be among the modes that are shown.
        iou: Overlap from which on an answer is that of a rater.
        inputs: How many inputs, where they are synthetic.
        seed: Of synthetic inputs.
        half: Whether to write the model in half precision.
        device: Where to compute.
        progress: Called with the model's name, the number of inputs done, and of all.
    """
    folder, target = find(model), Path(out)
    (loaded,) = load_models([model], device=device, plain=True)  # exported weights stay exact
    check_data(loaded.predictor.config.data, data)
    check_new_folder(target)
    if data is not None:
        verify_prepared(data)
    found = calibrate_predictor(
        loaded.predictor,
        data,
        coverage=coverage,
        iou=iou,
        inputs=inputs,
        seed=seed,
        progress=progress_of(loaded.name, progress),
    )
    with new_folder(target) as made:
        export_run(folder, made, half=half, changed=found.weights, about=found.about)
    return CalibrationResult(found.calibration, target, tuple(sorted(target.iterdir())))


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A calibration, the weights that it changes, and what config.json then says."""

    calibration: Calibration
    weights: dict[str, Tensor]
    about: dict[str, Any]


def calibrate_predictor(
    predictor: Predictor,
    data: str | Path | None,
    *,
    source: Source | None = None,
    coverage: Sequence[float] = COVERAGE,
    iou: float = AT_LEAST,
    inputs: int = INPUTS,
    seed: int = 0,
    progress: InputsProgress | None = None,
) -> Calibrated:
    """Calibrate a model on the val split of its data, or on the first `inputs` of a `source`."""
    check_images(predictor.network.axes)
    check_inputs(inputs)
    if data is not None:
        prepared = open_prepared(data)
        source = split_of_data(predictor, prepared, "val")
        inputs, about = len(source), {"data": prepared.digest}
    elif source is None:
        source = build_source(predictor.config.data, "val", seed=seed, device=predictor.device)
        about = {"inputs": inputs, "seed": seed}
    else:
        about = {"inputs": inputs}
    found = fit_calibration(
        predictor, source, inputs, coverage=coverage, iou=iou, progress=progress
    )
    assert isinstance(predictor.network, Modal)  # `fit_calibration` refuses others
    calibration = {
        "split": "val",
        **about,
        "temperature": found.temperature,
        "shift": [round(v, 4) for v in found.shift.tolist()],
        "ged_before": found.before,
        "ged_after": found.after,
        "patients": found.patients,
        "reachable_coverage": round(found.reachable, 4),
    }
    config = dataclasses.replace(predictor.config, modes=found.modes)
    written = {"config": dataclasses.asdict(config), "calibration": calibration}
    return Calibrated(found, found.fold(predictor.network), written)


def check_images(axes: int) -> None:
    """Refuse to calibrate a model of vectors: its answers are no masks."""
    if axes == 1:
        raise MueError(
            "calibration compares answers as masks, and the answers of this model are vectors; "
            "take a model of images"
        )
