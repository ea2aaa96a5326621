"""From a name or a run folder to a predictor."""

from __future__ import annotations

import difflib
from importlib.resources import files
from pathlib import Path

import torch

from mue.devices import Device, choose_device
from mue.inference.predictor import Predictor
from mue.training.checkpoint import RunError, load_config, load_network


def bundled() -> dict[str, Path]:
    """The models that come with the package, by name."""
    root = Path(str(files("mue"))) / "bundled"
    return {p.name: p for p in sorted(root.iterdir()) if p.is_dir()} if root.is_dir() else {}


def find(model: str | Path) -> Path:
    """The folder of a bundled model, or of a run."""
    known = bundled()
    if str(model) in known:
        return known[str(model)]
    folder = Path(model)
    if not folder.is_dir():
        near = difflib.get_close_matches(str(model), known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"bundled are {', '.join(known)}"
        raise RunError(f"there is no bundled model and no run folder {str(model)!r}; {hint}")
    return folder


def halves(device: torch.device) -> bool:
    """Whether answers are computed in half precision there, unless somebody says otherwise."""
    return device.type == "cuda"


def load(
    model: str | Path,
    *,
    device: Device = "auto",
    half: bool | None = None,
    record: bool = True,
) -> Predictor:
    """A bundled model by its name, or the model in a run folder, ready to answer.

    `half` says whether convolutions and products are computed in half precision: by default on a
    GPU. Probabilities and answers come out in float32 either way. `record` says whether a GPU may
    record what it is asked for again.
    """
    folder, where = find(model), choose_device(device)
    half = halves(where) if half is None else half
    return Predictor(load_network(folder, where), load_config(folder), half=half, record=record)
