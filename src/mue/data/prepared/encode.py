"""An annotated image as the bytes and numbers that are stored of it.

All that is computed of one image alone is here, so that several processes can do it; of the rest of
the package it needs little, and not torch, whose import takes longer than most folders do.
"""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple, get_args

import numpy as np
from jaxtyping import Shaped, UInt8
from numpy.typing import NDArray

from mue.data.images.image import Geometry
from mue.data.prepared.format import (
    FOREGROUND,
    MAX_CHANNELS,
    MAX_ITEM_PIXELS,
    MAX_NAME,
    MAX_RATERS,
    Dtype,
    is_packed,
    item_type,
)
from mue.data.prepared.item import Item, Rejected, Row

_ROW = tuple(field.name for field in fields(Row))


class Encoded(NamedTuple):
    """An image as it is stored.

    Attributes:
        record: Its row of `items.npy`, as bytes.
        foreground: Values of the annotated pixels that are listed.
        image: Its values, little endian.
        masks: A bit for each pixel, or with several classes a byte, for each rater.
        bits: Of unsigned values, where fewer are in use than their type has.
    """

    row: Row
    weights: tuple[float, ...] | None
    geometry: Geometry | None
    record: bytes
    foreground: Shaped[np.ndarray, "c n"]
    image: Shaped[np.ndarray, "c h w"]
    masks: UInt8[np.ndarray, "r n"]
    bits: int | None

    def without_pixels(self) -> "Encoded":
        """The same with an image and masks of no pixels, once these are in their files."""
        image = np.empty((len(self.image), 0, 0), self.image.dtype)
        return self._replace(image=image, masks=np.empty((len(self.masks), 0), np.uint8))


def encode(item: Item, labels: Sequence[str]) -> Encoded | Rejected:
    """What is stored of an image, or what is wrong with it; `labels` names the classes."""
    if (why := _flaw(item, max(2, len(labels)))) is not None:
        return Rejected(item.source, why)
    c, h, w = item.image.shape
    pixels = foreground_pixels(item.masks)
    flat = item.image.reshape(c, -1)
    record = np.zeros((), item_type(c))
    record["h"], record["w"], record["raters"] = h, w, len(item.masks)
    record["mean"], record["deviation"] = _moments(flat)
    record["foreground"] = -1
    record["foreground"][: len(pixels)] = pixels
    masks = item.masks.reshape(len(item.masks), -1)
    return Encoded(
        Row(**{name: getattr(item, name) for name in _ROW}),
        item.weights,
        item.geometry,
        record.tobytes(),
        flat[:, pixels],
        np.ascontiguousarray(item.image, item.image.dtype.newbyteorder("<")),
        np.packbits(masks, axis=1) if is_packed(labels) else np.ascontiguousarray(masks),
        item.bits,
    )


def _flaw(item: Item, classes: int) -> str | None:
    """What is wrong with an item, as a clause that follows on its name."""
    (c, *size), (r, *mask_size), dtype = item.image.shape, item.masks.shape, item.image.dtype
    weights = item.weights
    if any("\ud800" <= c <= "\udfff" for c in "".join((*item.key, item.source))):
        return "has a name that is not UTF-8; rename it"
    if (longest := max(map(len, (*item.key, item.source)))) > MAX_NAME:
        return f"has a name of {longest} characters; at most {MAX_NAME} are taken; rename it"
    if dtype.name not in get_args(Dtype):
        return f"has values of the type {dtype}, which is not prepared"
    if size != mask_size:
        one, other = ("{} x {}".format(*s) for s in (mask_size, size))
        return f"has masks of {one} and an image of {other} pixels"
    if not (0 < r <= MAX_RATERS and 0 < size[0] * size[1] < MAX_ITEM_PIXELS and c <= MAX_CHANNELS):
        return f"has {r} masks of {size[0]} x {size[1]} pixels in {c} channels"
    if (largest := int(item.masks.max())) >= classes:
        return f"has pixels of the class {largest}, and the classes are 0 to {classes - 1}"
    if weights is not None and not (
        len(weights) == r and min(weights) >= 0 and 0 < sum(weights) < math.inf
    ):
        return f"must have a weight of at least 0 for each of its {r} raters, got {weights}"
    return None


def _moments(flat: Shaped[np.ndarray, "c n"]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and deviation of each channel. Sums of few bits are exact, and need one pass."""
    values = flat.astype(np.float64)
    mean = values.mean(axis=1)
    if flat.dtype.itemsize > 2:
        return mean, values.std(axis=1)
    squares = np.array([v @ v for v in values]) / flat.shape[1]
    return mean, np.sqrt((squares - mean**2).clip(min=0))


def foreground_pixels(masks: UInt8[np.ndarray, "r h w"]) -> NDArray[np.int64]:
    """Some annotated pixels, as row · w + column: for each class alike, spread over its pixels."""
    flat = masks.reshape(len(masks), -1)
    highest = int(flat.max())
    marked = (flat.view(bool),) if highest == 1 else (flat == i for i in range(1, highest + 1))
    each = (np.flatnonzero(np.logical_or.reduce(where)) for where in marked)
    present = [where for where in each if len(where)]
    found: list[NDArray[np.int64]] = []
    for where in present[:FOREGROUND]:
        share = FOREGROUND // min(len(present), FOREGROUND)
        spread = np.linspace(0, len(where) - 1, share).round().astype(int)
        found.append(where[spread] if len(where) > share else where)
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
