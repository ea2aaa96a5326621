"""From a configuration to a data set."""

import os
from pathlib import Path

import torch

from mue.config.schema import Config, DataConfig, Switch
from mue.data.prepared.dataset import Slices
from mue.data.prepared.splits import Split
from mue.data.prepared.store import Prepared, open_prepared
from mue.data.source import Source
from mue.data.synthetic.guess import GuessingGame
from mue.data.synthetic.toy import Bars
from mue.data.synthetic.vector import Turns
from mue.errors import MueError

_APART = (
    1 << 40
)  # made data has no files to split: a split is a range of seeds, far from the others


def build_source(
    config: DataConfig,
    split: Split,
    *,
    seed: int,
    device: torch.device,
    data: str | Path | None = None,
    resident: Switch = "on",
) -> Source:
    """The data set of a configuration: items to train on, or items that training never sees.

    `data` is the folder of prepared slices, for a configuration that learns from slices;
    `resident` says whether they are to lie on the device: `auto` is where they fit.
    """
    check_data(config, data)
    if data is not None:
        prepared = open_prepared(data)
        return Slices(
            prepared,
            split,
            seed=seed,
            raters=config.answers,
            augment=config.augment,
            device=device,
            on_device=resident == "on" or (resident == "auto" and _fit(prepared, device)),
        )
    if config.name == "guess":
        return GuessingGame(
            "test" if split == "test" else "train",
            seed=seed + (_APART if split == "val" else 0),
            digit=config.digit,
            answers=config.answers,
            device=device,
        )
    made = seed + _APART * {"train": 0, "test": 1, "val": 2}[split]
    if config.name == "toy":
        return Bars(seed=made, device=device)
    return Turns(seed=made, device=device)


def _fit(prepared: Prepared, device: torch.device) -> bool:
    """Whether all slices take at most half of the memory that is free."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return prepared.images.nbytes + prepared.masks.nbytes <= free // 2


def check_data(config: DataConfig, data: str | Path | None) -> None:
    """Refuse slices without a folder of them, and a folder where everything is made up."""
    if config.name == "slices" and data is None:
        raise MueError(
            "--data must name a folder of prepared slices for this model; "
            "make one by `mue data import`"
        )
    if config.name != "slices" and data is not None:
        raise MueError(
            f"--data must be left out for {config.name!r}, whose inputs are made up; got {data}"
        )


def check_channels(config: Config) -> None:
    """Refuse a network that cannot take the inputs of its data, or give their answers."""
    vectors = config.data.name == "vector"
    needed = {"backbone": "mlp" if vectors else "unet", "c_in": 1 + vectors, "c_out": 1 + vectors}
    for name, value in needed.items():
        if (got := getattr(config.model, name)) != value:
            raise MueError(
                f"model.{name} must be {value} for the data {config.data.name!r}, got {got}"
            )
