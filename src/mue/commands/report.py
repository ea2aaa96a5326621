"""What the commands share: models by name, folders for output, reports."""

import contextlib
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mue.errors import MueError, printable
from mue.evaluation.health import HealthReport
from mue.evaluation.known import ModeEvaluation
from mue.evaluation.raters import RaterEvaluation
from mue.inference.load import bundled_name, find, load
from mue.inference.predictor import Predictor
from mue.runs.folder import origin
from mue.runs.weights import weights_digest
from mue.runtime.atomic import check_folder, write_atomic
from mue.runtime.devices import Device
from mue.version import __version__

HEALTH = "health.json"
"""What a training writes of the health of its model."""
FIGURES = "figures"
"""The folder in a run folder that figures are written to."""
_LARGEST_REPORT = 1 << 26
Model = str | Path | Predictor
"""A bundled model by its name, a run folder, or a predictor."""
Paths = str | Path | Sequence[str | Path]
"""One path, or several."""
Progress = Callable[[str, int, int], None]
"""Called with the name of a job, the number of its items that are done, and of all."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model by its unique name; `source` is None for a predictor of the caller."""

    name: str
    predictor: Predictor
    source: str | Path | None


def load_models(
    models: Iterable[Model], *, device: Device | torch.device = "auto", plain: bool = False
) -> list[LoadedModel]:
    """Load models, each once, by unique names.

    A name is the last part of a path, or the whole of it where two end alike; predictors are
    counted. With `plain`, every model is computed in float32 and without CUDA graphs.
    """
    options: dict[str, Any] = {"half": False, "accelerate": False} if plain else {}
    known: dict[Model, Model] = {}
    for model in models:
        known.setdefault(_identity(model), model)
    each = list(known.values())
    long = [f"model {i + 1}" if isinstance(m, Predictor) else str(m) for i, m in enumerate(each)]
    short = [Path(name).name.removeprefix("bundled:") for name in long]
    names = list(map(printable, short if len(set(short)) == len(each) else long))
    loaded: dict[str, LoadedModel] = {}
    for name, model in zip(names, each, strict=True):
        if isinstance(model, Predictor):
            loaded[name] = LoadedModel(name, model, None)
        elif name not in loaded:
            loaded[name] = LoadedModel(name, load(model, device=device, **options), model)
    return list(loaded.values())


def _identity(model: Model) -> Model:
    """What two spellings of the same run folder, or of a bundled model, have in common."""
    return model if isinstance(model, Predictor) else find(model).resolve()


def paths_of(given: Paths, name: str) -> list[Path]:
    """Paths of which the caller gave one or several."""
    listed = [given] if isinstance(given, (str, Path)) else list(given)
    for path in listed:
        if not isinstance(path, (str, Path)):
            raise MueError(f"`{name}` must be paths of files or folders, got {type(path).__name__}")
    return list(map(Path, listed))


def progress_of(name: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    """The progress of one job."""
    return None if progress is None else functools.partial(progress, name)


def output_folder(model: LoadedModel, out: str | Path | None) -> Path:
    """`out`, or by default the run folder, or `runs/bundled/NAME` for a bundled model.

    It is one that files can be written to.
    """
    if out is not None:
        folder = Path(out)
    elif model.source is None:
        raise MueError("`out` must name a folder for the files of a Predictor, got None")
    elif (name := bundled_name(model.source)) is not None:
        folder = Path("runs") / "bundled" / name
    else:
        folder = find(model.source)
    check_folder(folder)
    return folder


def weights_of(model: LoadedModel) -> str:
    """Which model this is, wherever it is: the digest of its weights, if they are from a file."""
    return model.name if model.source is None else weights_digest(find(model.source))


def check_report(path: Path, identity: dict[str, Any]) -> None:
    """Refuse to replace the report of another evaluation: of other weights, data or settings."""
    before = None
    if path.is_file() and path.stat().st_size < _LARGEST_REPORT:
        with contextlib.suppress(ValueError, RecursionError):
            before = json.loads(path.read_bytes())
    if not isinstance(before, dict):
        return
    found = before.get("identity")
    found = found if isinstance(found, dict) else {}
    if other := [name for name, value in identity.items() if found.get(name) != value]:
        raise MueError(
            f"{path} is a report of other {', '.join(other)}; remove it, or take another --out"
        )


def report(model: LoadedModel, evaluation: ModeEvaluation | RaterEvaluation) -> dict[str, Any]:
    """What `report-SPLIT.json` holds: the model, how it was trained, and every metric."""
    about: dict[str, Any] = {"model": model.name, "method": model.predictor.config.method}
    if model.source is not None:
        folder = find(model.source)
        about |= {
            "model": str(model.source),
            "weights": weights_digest(folder),
            "trained_with": origin(folder),
        }
    versions = {"version": __version__, "torch": torch.__version__}
    return {**about, "evaluated_with": versions, **evaluation.report()}


def save_report(path: Path, content: dict[str, Any]) -> Path:
    """Write a report as indented JSON."""
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
    return path


def save_health(found: HealthReport, path: Path, title: str, *, outlines: bool) -> list[Path]:
    """Plot the codes of a model; one without codes has no figure."""
    from mue.plots.health import plot_health
    from mue.plots.style import save_figure

    if not found.codes:
        return []
    return [save_figure(plot_health(found, title, outlines=outlines), path)]
