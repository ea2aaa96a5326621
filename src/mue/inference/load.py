"""From a name or a run folder to a predictor."""

from __future__ import annotations

import difflib
import os
from importlib.resources import files
from pathlib import Path

import torch

from mue.acceleration import accelerated
from mue.inference.predictor import Predictor
from mue.models.heads import Heads
from mue.models.modal import Modal
from mue.models.probunet import ProbUNet
from mue.runs.folder import CONFIG, RunError, load_config
from mue.runs.weights import load_network
from mue.runtime.devices import Device, choose_device

_PREFIX = "bundled:"


def bundled() -> dict[str, Path]:
    """The models that come with the package, by name."""
    root = Path(str(files("mue"))) / "bundled"
    return {p.name: p for p in sorted(root.iterdir()) if p.is_dir()} if root.is_dir() else {}


def bundled_name(model: str | os.PathLike[str]) -> str | None:
    """The name of the bundled model that is meant: NAME or bundled:NAME. None for a folder."""
    known, name = bundled(), os.fspath(model)
    if not isinstance(model, str) or name.removeprefix(_PREFIX) not in known:
        return None
    if name in known and (Path(name) / CONFIG).is_file():
        raise RunError(
            f"{name!r} is the name of a bundled model and of a run folder here; "
            f"take ./{name} for the folder, or {_PREFIX}{name} for the bundled model"
        )
    return name.removeprefix(_PREFIX)


def find(model: str | os.PathLike[str]) -> Path:
    """The folder of a bundled model, or of a run."""
    known, name = bundled(), bundled_name(model)
    if name is not None:
        return known[name]
    folder = Path(model)
    if not folder.is_dir():
        close = difflib.get_close_matches(os.fspath(model), known, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}?" if close else f"bundled are {', '.join(known)}"
        raise RunError(f"there is no bundled model and no run folder {os.fspath(model)!r}; {hint}")
    return folder


def half_by_default(device: torch.device) -> bool:
    """Whether answers are computed in half precision there by default."""
    return device.type == "cuda"


def load(
    model: str | os.PathLike[str],
    *,
    network: Modal | ProbUNet | Heads | None = None,
    device: Device | torch.device = "auto",
    half: bool | None = None,
    accelerate: bool = True,
) -> Predictor:
    """Load a bundled model by its name, or the model in a run folder.

    Args:
        model: NAME or bundled:NAME of a bundled model, a run folder, or what `mue.train` returns.
        network: Receives the weights of the run, in place of one built from its configuration:
            for a backbone of your own.
        device: Where to compute.
        half: Whether convolutions and products are computed in half precision: by default on a
            GPU. Probabilities and answers are in float32 either way.
        accelerate: Whether a GPU may capture repeated calls as CUDA graphs.
    """
    folder, where = find(model), choose_device(device)
    half = half_by_default(where) if half is None else half
    network = load_network(folder, where, network)
    predictor = Predictor(network, load_config(folder), half=half)
    return accelerated(predictor) if accelerate else predictor
