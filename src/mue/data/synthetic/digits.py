"""MNIST, which ships with the package."""

import lzma
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from mue.errors import MueError

MnistSplit = Literal["train", "test"]
_COUNT: dict[MnistSplit, int] = {"train": 60_000, "test": 10_000}
_SIDE = 28


@dataclass(frozen=True, slots=True)
class Digits:
    """Handwritten digits, sorted by their label."""

    image: UInt8[Tensor, "n 28 28"]
    first: Int[Tensor, " 10"]  # the first image of each label
    count: Int[Tensor, " 10"]  # how many images each label has


@cache
def load_digits(split: MnistSplit) -> Digits:
    """The digits of a split, read from the package.

    The file is the images as bytes, digit after digit, then their labels, compressed by xz.
    `docs/data.md` says how it was made from the original files.
    """
    packed = files("mue.data.synthetic").joinpath("mnist", f"{split}.xz").read_bytes()
    n, size = _COUNT[split], _COUNT[split] * (_SIDE * _SIDE + 1)
    raw = lzma.LZMADecompressor().decompress(packed, max_length=size + 1)
    if len(raw) != size:
        raise MueError(
            f"the packaged MNIST file {split}.xz must hold {size} bytes, got {len(raw)}; "
            "reinstall mue"
        )
    table = np.frombuffer(raw, dtype=np.uint8)
    image = table[: n * _SIDE * _SIDE].reshape(n, _SIDE, _SIDE)
    label = torch.from_numpy(table[n * _SIDE * _SIDE :].astype(np.int64))
    order = label.argsort(stable=True)
    count = torch.bincount(label, minlength=10)
    return Digits(torch.from_numpy(image[order.numpy()]), count.cumsum(0) - count, count)
