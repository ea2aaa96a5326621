"""The prepared form of annotated images: a folder whose arrays are memory-mapped.

    meta.json      format, number, type and channels of the images, classes, normalization, origin,
                   and the sha256 of the other files
    index.csv      a line for each image: patient, case, slice, source, spacing in mm, split,
                   weights of the raters
    items.npy      for each image: height, width, raters, mean and deviation of each channel, and
                   some annotated pixels
    images.bin     the images one after another, each c h w
    masks.bin      the masks one after another: a bit for each pixel, row by row, the first pixel
                   highest, each mask in whole bytes; with several classes a byte for each pixel
    volumes.json   the geometry of the volumes that slices were cut from

Sizes and raters differ from image to image; type and channels do not. Nothing depends on when or
where it was written: the same source gives the same bytes. A split is stored only where the source
says it, else it is computed from the patient's name.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mue.config.schema import NormalizeConfig
from mue.data.prepared.item import Row

META, INDEX, ITEMS, VOLUMES = "meta.json", "index.csv", "items.npy", "volumes.json"
IMAGES, MASKS = "images.bin", "masks.bin"
FORMAT = "mue prepared 2"
KNOWN = "known_probabilities"
"""What the origin says of data whose raters give all answers there are, by their probability."""
COLUMNS = (*(field.name for field in fields(Row)), "weights")
"""Of `index.csv`."""
Dtype = Literal["uint8", "uint16", "int16", "int32", "float32"]
FOREGROUND = 32
"""Annotated pixels of an image that are listed, at most."""
MAX_NAME = 4096
"""Characters of the longest patient, case, slice or source that is prepared."""
MAX_ITEM_PIXELS = 1 << 31
"""An image has fewer pixels, whose numbers are stored in 31 bits (readers take far fewer)."""
MAX_RATERS, MAX_CHANNELS = 1 << 12, 1 << 12
MAX_CLASSES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """What `meta.json` says of the images."""

    format: str
    images: int  # how many
    dtype: Dtype
    channels: int
    labels: tuple[str, ...]  # the classes, the background first; empty: one mask without a name
    values: tuple[int, ...] = ()  # of the classes in the files; empty: 0, 1, 2, …
    bits: tuple[int, ...] = ()  # in use of unsigned values, of each image; empty: those of dtype
    normalize: NormalizeConfig  # what suits these images
    left_out: int


@cache
def item_type(channels: int) -> np.dtype:
    """The type of a row of `items.npy`."""
    return np.dtype(
        [
            *((name, "<i4") for name in ("h", "w", "raters")),
            *((name, "<f4", (channels,)) for name in ("mean", "deviation")),
            ("foreground", "<i4", (FOREGROUND,)),
        ]
    )


def is_packed(labels: Sequence[str]) -> bool:
    """Whether a mask has a bit for each pixel; else a byte, its class."""
    return len(labels) <= 2


def lengths(meta: Meta, items: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Values of each image, and bytes of its masks."""
    pixels = items["h"].astype(np.int64) * items["w"]
    mask = -(-pixels // 8) if is_packed(meta.labels) else pixels
    return meta.channels * pixels, mask * items["raters"]


def file_digest(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
