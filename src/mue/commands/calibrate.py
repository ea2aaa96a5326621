"""`mue calibrate`: probabilities that fit inputs the model was not trained on."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mue.commands.report import Progress, load_models, require_empty
from mue.data.build import build_source, check_data
from mue.data.prepared.dataset import Slices
from mue.data.prepared.store import open_prepared
from mue.devices import Device
from mue.errors import MueError
from mue.evaluation.calibrate import Calibration, fit_calibration
from mue.inference.load import find
from mue.models.modal import Modal
from mue.training import checkpoint


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """A calibrated model.

    Attributes:
        calibration: The change of the prior, and the energy distance before and after.
        folder: Can be loaded as a run folder.
        files: What was written.
    """

    calibration: Calibration
    folder: Path
    files: tuple[Path, ...]


def calibrate(
    model: str | Path,
    out: str | Path,
    *,
    data: str | Path | None = None,
    inputs: int = 1000,
    seed: int = 0,
    half: bool = True,
    device: Device = "auto",
    progress: Progress | None = None,
) -> CalibrationResult:
    """Fit a model's probabilities to the val split, and write it to a new folder.

    Training makes a model overconfident: it has seen the answers to its inputs many times. The
    inputs of val are new to it, and those of test stay untouched.

    Args:
        model: A bundled model, or a run folder.
        out: The new folder.
        data: Folder of prepared slices, for a model that was trained on slices.
        inputs: How many inputs, where they are synthetic.
        seed: Of synthetic inputs.
        half: Whether to write the model in half precision.
        device: Where to compute.
        progress: Called with the model's name, the number of inputs done, and of all.
    """
    folder, target = find(model), Path(out)
    (loaded,) = load_models([model], device=device, plain=True)  # exported weights stay exact
    predictor = loaded.predictor
    check_data(predictor.config.data, data)
    require_empty(target)
    about: dict[str, Any] = {"split": "val"}
    if data is not None:
        prepared = open_prepared(data)
        source = Slices(prepared, "val", device=predictor.device)
        count = len(source)
        about["data"] = prepared.digest
    else:
        if predictor.network.axes == 1:
            raise MueError(
                "calibration compares answers as masks, and the answers of this model are vectors; "
                "take a model of images"
            )
        if inputs < 1:
            raise MueError(f"`inputs` must be at least 1, got {inputs}")
        source = build_source(predictor.config.data, "val", seed=seed, device=predictor.device)
        count = inputs
        about |= {"inputs": inputs, "seed": seed}
    show = functools.partial(progress, loaded.name) if progress else None
    found = fit_calibration(predictor, source, count, progress=show)
    about |= {
        "temperature": found.temperature,
        "shift": [round(v, 4) for v in found.shift.tolist()],
        "ged_before": found.before,
        "ged_after": found.after,
    }
    assert isinstance(predictor.network, Modal)  # `fit_calibration` refuses others
    checkpoint.export(
        folder,
        target,
        half=half,
        changed=found.fold(predictor.network),
        about={"calibration": about},
    )
    return CalibrationResult(found, target, tuple(sorted(target.iterdir())))
