"""What an import of LIDC-IDRI can be asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, UInt8

from mue.errors import MueError

Form = Literal["slices", "crops", "pickle", "dicom"]
RATERS = 4
"""Masks of each slice: four radiologists read every scan."""
MAX_SIDE = 4096
"""Pixels of the longest side of an image that is read."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may choose."""

    size: int | None = None
    """Side of the crops in pixels. None keeps images as they are, and is 128 for DICOM."""
    window: tuple[float, float] | None = None
    """The Hounsfield units that become black and white; DICOM only. None scales each crop by its
    own minimum and maximum."""

    def __post_init__(self) -> None:
        """Refuse an empty crop or window."""
        if self.size is not None and self.size < 1:
            raise MueError(f"`size`, the side of a crop, must be at least 1, got {self.size}")
        if self.window is not None:
            low, high = self.window
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise MueError(
                    f"`window` must be two Hounsfield units, the lower one first, got {low} {high}"
                )


def center_crop(
    image: UInt8[np.ndarray, "h w"], masks: Bool[np.ndarray, "4 h w"], size: int | None
) -> tuple[UInt8[np.ndarray, "s t"], Bool[np.ndarray, "4 s t"]]:
    """The central square of an image and its masks, or all of them for `size` None."""
    if size is None:
        return image, masks
    h, w = image.shape
    if size > min(h, w):
        raise MueError(f"is {h}×{w} pixels, too small for crops of {size}×{size}")
    top, left = (h - size) // 2, (w - size) // 2
    rows, columns = slice(top, top + size), slice(left, left + size)
    return image[rows, columns], masks[:, rows, columns]
