"""From a configuration to a data set."""

from typing import Literal

import torch

from mue.config import Config, DataConfig
from mue.data.guess import GuessingGame
from mue.data.source import Source
from mue.data.toy import Bars
from mue.data.vector import Turns

_TEST_SEED = 1 << 40  # made data has no files to split: the test set is another seed, far away


def build_source(
    config: DataConfig, split: Literal["train", "test"], *, seed: int, device: torch.device
) -> Source:
    """The data set of a configuration: training items, or test items that training never sees."""
    if config.name == "guess":
        return GuessingGame(
            split, seed=seed, digit=config.digit, answers=config.answers, device=device
        )
    made = seed if split == "train" else seed + _TEST_SEED
    if config.name == "toy":
        return Bars(seed=made, device=device)
    return Turns(seed=made, device=device)


def check_channels(config: Config) -> None:
    """Refuse a network that cannot take the inputs of its data, or give their answers."""
    vectors = config.data.name == "vector"
    needed = {"backbone": "mlp" if vectors else "unet", "c_in": 1 + vectors, "c_out": 1 + vectors}
    for name, value in needed.items():
        if (got := getattr(config.model, name)) != value:
            raise ValueError(
                f"model.{name} must be {value} for the data {config.data.name!r}, got {got}"
            )
