"""`mue calibrate`: probabilities that fit inputs the model was not trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mue.commands.report import Progress, load_models, progress_of, require_empty
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
    """The change of the prior, a folder that can be loaded as a run folder, the files in it."""

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
    config, network, where = predictor.config.data, predictor.network, predictor.device
    check_data(config, data)
    require_empty(target)
    if data is not None:
        prepared = open_prepared(data)
        source = Slices(prepared, "val", device=where)
        inputs, about = len(source), {"data": prepared.digest}
    elif network.axes == 1:
        raise MueError(
            "calibration compares answers as masks, and the answers of this model are vectors; "
            "take a model of images"
        )
    elif inputs < 1:
        raise MueError(f"`inputs` must be at least 1, got {inputs}")
    else:
        source = build_source(config, "val", seed=seed, device=where)
        about = {"inputs": inputs, "seed": seed}
    show = progress_of(loaded.name, progress)
    found = fit_calibration(predictor, source, inputs, progress=show)
    assert isinstance(network, Modal)  # `fit_calibration` refuses others
    calibration = {
        "split": "val",
        **about,
        "temperature": found.temperature,
        "shift": [round(v, 4) for v in found.shift.tolist()],
        "ged_before": found.before,
        "ged_after": found.after,
    }
    changed, written = found.fold(network), {"calibration": calibration}
    checkpoint.export(folder, target, half=half, changed=changed, about=written)
    return CalibrationResult(found, target, tuple(sorted(target.iterdir())))
