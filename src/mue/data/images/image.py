"""An image as its file holds it, and where a volume lies in space."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Shaped

from mue.errors import MueError

MAX_PIXELS = 1 << 26
"""Pixels of the largest picture or slice that is read."""
MAX_BYTES = 1 << 31
"""Bytes of the largest file that is read, and of the pixels of the largest image or series."""
Axis = Literal[0, 1, 2]


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """Where the voxels of a volume are, and how it is cut into slices."""

    affine: Float[np.ndarray, "4 4"]  # of voxel (i, j, k) to mm; x to the right, y front, z up
    shape: tuple[int, int, int]  # i j k
    axis: int  # the one along which slices were cut: 0, 1 or 2

    @property
    def spacing(self) -> tuple[float, float]:
        """Millimetres between the rows of a slice, and between its columns."""
        mm = np.linalg.norm(self.affine[:3, :3], axis=0)
        rows, columns = (i for i in (2, 1, 0) if i != self.axis)
        return float(mm[rows]), float(mm[columns])


@dataclass(frozen=True, slots=True, eq=False)
class RawImage:
    """The values of an image, of the type that its file has: no scaling, no clipping.

    Pixels are uint8, uint16, int16, int32 or float32, all finite. A volume is indexed k j i, as
    SimpleITK and nnU-Net do it, with the axis that slices are cut along first.
    """

    pixels: Shaped[np.ndarray, "c d h w"]  # d slices, 1 for a picture
    geometry: Geometry | None  # None for a picture
    files: tuple[Path, ...]  # one, or those of a DICOM series in the order of its slices (k)


def check_size(shape: tuple[int, ...], dtype: np.dtype | type) -> None:
    """Refuse an image … h w by what its header claims, before memory of that size is taken."""
    values = 1
    for n in shape:
        values *= int(n)
    if values < 1 or int(shape[-1]) * int(shape[-2]) > MAX_PIXELS:
        raise MueError(f"is {shape[-2]} x {shape[-1]} pixels; 1 to {MAX_PIXELS} are read; crop it")
    if values * np.dtype(dtype).itemsize > MAX_BYTES:
        size = " x ".join(map(str, shape))
        raise MueError(f"is {size} values, and at most {MAX_BYTES} bytes are read; divide it")


def plain_values(pixels: np.ndarray) -> np.ndarray:
    """The same values as uint8, uint16, int16, int32 or float32, in the machine's byte order."""
    kind, size = pixels.dtype.kind, pixels.dtype.itemsize
    if kind not in "buif" or size > 8:
        raise MueError(f"has values of the type {pixels.dtype}, not whole or real numbers")
    if kind == "f":
        with np.errstate(over="ignore"):
            pixels = pixels.astype(np.float32, copy=False)
        if not np.isfinite(pixels).all():
            raise MueError("has values that are infinite or not a number; replace them")
        return pixels
    if kind == "b" or (kind, size) in (("u", 1), ("u", 2), ("i", 1), ("i", 2), ("i", 4)):
        plain = {"b1": "u1", "i1": "i2"}.get(f"{kind}{size}", f"{kind}{size}")
        return pixels.astype(plain, copy=False)
    low, high = int(pixels.min()), int(pixels.max())
    if low < -(1 << 31) or high >= 1 << 31:
        raise MueError(f"has whole numbers from {low} to {high}; at most 32 bits are read")
    return pixels.astype(np.int32)


def cut_slices(
    volume: Shaped[np.ndarray, "c k j i"], axis: Axis
) -> tuple[Shaped[np.ndarray, "c d h w"], Axis]:
    """A volume with the axis to cut along first, and that axis: 2 for what is a single slice."""
    axis = 2 if volume.shape[1] == 1 else axis
    return np.moveaxis(volume, 3 - axis, 1), axis
