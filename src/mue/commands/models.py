"""Models as commands are given them: by unique names, each loaded once, with its folder."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mue.errors import MueError, printable
from mue.inference.load import bundled_name, find, load
from mue.inference.predictor import Predictor
from mue.runs.identity import model_digest
from mue.runtime.atomic import check_folder
from mue.runtime.devices import Device

Model = str | os.PathLike[str] | Predictor
"""A bundled model by its name, a run folder or what `train` returns, or a predictor."""


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
    known: dict[Path | Predictor, str | Path | Predictor] = {}
    for given in models:
        model = given if isinstance(given, (str, Predictor)) else Path(given)
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


def _identity(model: str | Path | Predictor) -> Path | Predictor:
    """What two spellings of the same run folder, or of a bundled model, have in common."""
    return model if isinstance(model, Predictor) else find(model).resolve()


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


def digest_of(model: LoadedModel) -> str:
    """Which model this is, wherever it is: its digest or, of a predictor, its name."""
    return model.name if model.source is None else model_digest(find(model.source))
