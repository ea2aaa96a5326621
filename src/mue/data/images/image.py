"""An image as its file holds it, and where a volume lies in space."""

import io
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
from jaxtyping import Float, Shaped

from mue.errors import MueError, ReadError

MAX_PIXELS = 1 << 26
"""Pixels of the largest picture or slice that is read."""
MAX_BYTES = 1 << 31
"""Bytes of the largest file that is read, and of the pixels of the largest image or series."""
Axis = Literal[0, 1, 2]
_TOLERANCE = 0.1  # of a voxel, by which corners of a mask and its image may differ


@dataclass(frozen=True, slots=True)
class Limits:
    """How large an image may be by what its header claims."""

    pixels: int = MAX_PIXELS  # of a picture or slice
    bytes: int = MAX_BYTES  # of all pixels


_ANY = Limits()
_limits = ContextVar("limits", default=_ANY)


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Read no image beyond these limits, in this thread or task."""
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


def max_bytes() -> int:
    """Bytes that the pixels of an image may have here."""
    return _limits.get().bytes


@dataclass(frozen=True, slots=True, eq=False)
class FileInMemory:
    """A file that is on no disk, with the methods of `Path` that the readers call."""

    name: str
    content: bytes

    def __str__(self) -> str:
        return self.name

    @property
    def suffix(self) -> str:
        """The ending of the name."""
        return Path(self.name).suffix

    def open(self, _mode: str = "rb") -> io.BytesIO:
        """Its content from the start."""
        return io.BytesIO(self.content)

    def stat(self) -> SimpleNamespace:
        """Its size, and that it is a file."""
        return SimpleNamespace(st_size=len(self.content), st_mode=stat.S_IFREG)

    def exists(self) -> bool:
        """Whether it can be read."""
        return True

    is_file = exists

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return False


ImageFile = Path | FileInMemory


def open_bounded(file: ImageFile) -> io.BufferedReader | io.BytesIO:
    """Open a file for reading; a read never asks for more bytes than are left.

    A damaged length may ask for 4 GiB, which Python would allocate before it reads.
    """
    return _BoundedReader(file) if isinstance(file, Path) else file.open()


class _BoundedReader(io.BufferedReader):
    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self._size = path.stat().st_size

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


@dataclass(frozen=True, slots=True, eq=False)
class SeriesInMemory:
    """The files of a DICOM series that are on no disk, read as those of a folder are."""

    name: str
    files: tuple[FileInMemory, ...]

    def __str__(self) -> str:
        return self.name


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

    @property
    def slice_size(self) -> tuple[int, int]:
        """Height and width of a slice."""
        h, w = (self.shape[i] for i in (2, 1, 0) if i != self.axis)
        return h, w


@dataclass(frozen=True, slots=True, eq=False)
class RawImage:
    """The values of an image, of the type that its file has: no scaling, no clipping.

    Pixels are uint8, uint16, int16, int32 or float32, all finite. A volume is indexed k j i, as
    SimpleITK and nnU-Net do it, with the axis that slices are cut along first.
    """

    pixels: Shaped[np.ndarray, "c d h w"]  # d slices, 1 for a picture
    geometry: Geometry | None  # None for a picture
    files: tuple[ImageFile, ...]  # one, or those of a DICOM series in the order of its slices (k)
    bits: int | None = None  # of unsigned values, where DICOM says that fewer are stored than 16


def common_bits(channels: Sequence[RawImage]) -> int | None:
    """The bits in use of channels that are one image, if these are the same in all."""
    bits = {channel.bits for channel in channels}
    return bits.pop() if len(bits) == 1 else None


def check_fit(path: str | Path, other: RawImage, image: RawImage, image_path: str | Path) -> None:
    """Refuse a mask or channel that is not where the pixels of its image are."""
    if other.pixels.shape[1:] != image.pixels.shape[1:]:
        one, two = (_size(found) for found in (other, image))
        raise ReadError(path, f"is {one} and {image_path} {two}; they must be the same")
    a, b = other.geometry, image.geometry
    if a is None or b is None:
        return
    i, j, k = b.shape
    corners = np.array([[x, y, z, 1] for x in (0, i) for y in (0, j) for z in (0, k)]).T
    off = np.linalg.norm(((a.affine - b.affine) @ corners)[:3], axis=0).max()
    voxel = np.linalg.norm(b.affine[:3, :3], axis=0).min()
    if off > _TOLERANCE * voxel:
        raise ReadError(
            path,
            f"has an affine that puts it up to {off:.3g} mm away from {image_path}; "
            "resample it to the image, or copy the affine if only the header is wrong",
        )


def _size(image: RawImage) -> str:
    _, d, h, w = image.pixels.shape
    return f"{h} x {w}" + (f", {d} slices" if d > 1 else "")


def check_size(shape: tuple[int, ...], dtype: np.dtype | type) -> None:
    """Refuse an image … h w by what its header claims, before memory of that size is taken."""
    values, limits = 1, _limits.get()
    for n in shape:
        values *= int(n)
    if values < 1 or int(shape[-1]) * int(shape[-2]) > limits.pixels:
        raise MueError(
            f"is {shape[-2]} x {shape[-1]} pixels; 1 to {limits.pixels} are read; crop it"
        )
    if values * np.dtype(dtype).itemsize > limits.bytes:
        size = " x ".join(map(str, shape))
        raise MueError(f"is {size} values, and at most {limits.bytes} bytes are read; divide it")


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


def volume_image(
    voxels: Shaped[np.ndarray, "c k j i"],
    affine: np.ndarray | None,
    files: tuple[ImageFile, ...],
    axis: Axis,
    mask: bool,
) -> RawImage:
    """Voxels as an image, cut into slices along an axis; `affine` says where they are in space.

    With `mask`, channels must be equal, and become one.
    """
    if affine is not None and not (
        np.isfinite(affine).all() and abs(np.linalg.det(affine[:3, :3])) >= 1e-9
    ):
        raise MueError("has positions, spacings or an affine of no volume; correct its header")
    if mask and len(voxels) > 1:
        if (voxels != voxels[:1]).any():
            raise MueError(f"has {len(voxels)} channels; a mask has one value for each pixel")
        voxels = voxels[:1]
    pixels, axis = cut_slices(plain_values(voxels), axis)
    k, j, i = voxels.shape[1:]
    geometry = None if affine is None else Geometry(affine, (i, j, k), axis)
    return RawImage(pixels, geometry, files)
