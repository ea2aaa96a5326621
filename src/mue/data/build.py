"""From a configuration to a data set."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from mue.config.schema import Config, DataConfig, Switch
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import Prepared, open_prepared
from mue.data.prepared.splits import Split
from mue.data.random import check_seed
from mue.data.source import Source
from mue.data.synthetic.guess import GuessingGame
from mue.data.synthetic.toy import Bars
from mue.data.synthetic.vector import Rotations
from mue.errors import MueError
from mue.types import Case, Pair

_SPLIT_OFFSET = 1 << 40
"""Distance of the seeds of two splits of generated data, far beyond the seed of any run."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What a data set is built from."""

    config: DataConfig
    split: Split
    seed: int
    device: torch.device  # where its batches go
    folder: Path | None = None  # the prepared data, for a data set that reads files
    resident: Switch = "on"  # whether prepared data is kept on the device; `auto`: where it fits

    @property
    def split_seed(self) -> int:
        """A seed for generated data, which has no files to split: different for each split."""
        return self.seed + _SPLIT_OFFSET * {"train": 0, "test": 1, "val": 2}[self.split]


def _guess(spec: SourceSpec) -> Source:
    """The guessing game: val has the digits of train, in other rounds."""
    return GuessingGame(
        "test" if spec.split == "test" else "train",
        seed=spec.seed + (_SPLIT_OFFSET if spec.split == "val" else 0),
        digit=spec.config.digit,
        answers=spec.config.answers,
        device=spec.device,
    )


def _slices(spec: SourceSpec) -> Source:
    """Prepared slices with several raters."""
    assert spec.folder is not None  # `check_data` asks for it
    prepared = open_prepared(spec.folder)
    kept = spec.resident == "on" or (spec.resident == "auto" and _fits(prepared, spec.device))
    return Slices(
        prepared,
        spec.split,
        spec.config,
        seed=spec.seed,
        device=spec.device,
        on_device=kept,
    )


SOURCES: dict[str, Callable[[SourceSpec], Source]] = {
    "guess": _guess,
    "toy": lambda spec: Bars(seed=spec.split_seed, device=spec.device),
    "vector": lambda spec: Rotations(seed=spec.split_seed, device=spec.device),
    "slices": _slices,
}
"""Data sets by `data.name`. A new one adds a line here."""


def build_source(
    config: DataConfig,
    split: Split,
    *,
    seed: int,
    device: torch.device,
    data: str | Path | None = None,
    resident: Switch = "on",
) -> Source:
    """The data set of a configuration; `data` is the folder of prepared data, if it reads one.

    Only what is trained on must be able to give pairs: val and test may have images of several
    sizes, or fewer raters.
    """
    check_data(config, data)
    check_seed(seed)
    folder = None if data is None else Path(data)
    source = SOURCES[config.name](SourceSpec(config, split, seed, device, folder, resident))
    if split == "train":
        answers = source.pair(torch.tensor([0])).y.shape[1]
        if answers != config.answers:
            raise MueError(
                f"data.answers must be {answers} for the data {config.name!r}, got {config.answers}"
            )
    return source


def _fits(prepared: Prepared, device: torch.device) -> bool:
    """Whether all slices take at most half of the free memory; False where that is not known."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
    elif "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", ()):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:  # Windows and macOS
        return False
    return prepared.images.nbytes + prepared.masks.nbytes <= free // 2


def check_data(config: DataConfig, data: str | Path | None) -> None:
    """Refuse an unknown name, prepared data without its folder, a folder for generated data."""
    if config.name not in SOURCES:
        raise MueError(
            f"data.name must be one of {', '.join(SOURCES)}, got {config.name!r}; add a data set "
            "of your own to SOURCES in mue/data/build.py, or give it to mue.train as `source`"
        )
    reads_folder = config.name == "slices"
    if reads_folder and data is None:
        raise MueError(
            "--data must name a folder of prepared slices for this model; "
            "make one by `mue data import`"
        )
    if not reads_folder and data is not None:
        raise MueError(
            f"--data must be left out for {config.name!r}, whose inputs are generated; got {data}"
        )


def check_shapes(config: Config, item: Pair | Case, axes: int) -> None:
    """Refuse a network that cannot take the inputs of a data set, or give its answers.

    `axes` is that of the network: 3 for images, 1 for vectors.
    """
    answers = item.y if isinstance(item, Pair) else item.ys
    x, y = tuple(item.x.shape[1:]), tuple(answers.shape[2:])
    model = config.model
    if len(x) != axes:
        raise MueError(
            f"model.backbone must take inputs of {len(x)} axes for this data, whose inputs have "
            f"the shape {x}, got {model.backbone!r}, which takes {axes}; `mlp` takes vectors, "
            "`unet` images"
        )
    for name, kind, shape, channels in (
        ("c_in", "inputs", x, model.c_in),
        ("c_out", "answers", y, model.c_out),
    ):
        if channels != shape[0]:
            raise MueError(
                f"model.{name} must be {shape[0]} for this data, whose {kind} have the shape "
                f"{shape}, got {channels}"
            )
