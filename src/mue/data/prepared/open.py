"""Prepared folders: opened, with their arrays memory-mapped, and compared with their digests."""

import csv
import hashlib
import io
import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt8
from numpy.lib import format as npy
from numpy.typing import NDArray

from mue.config.json import from_dict
from mue.config.schema import check_values
from mue.data.images.image import Geometry
from mue.data.prepared.format import (
    COLUMNS,
    FORMAT,
    IMAGES,
    INDEX,
    ITEMS,
    KNOWN,
    MASKS,
    MAX_CHANNELS,
    MAX_CLASSES,
    MAX_ITEM_PIXELS,
    MAX_RATERS,
    META,
    VOLUMES,
    Meta,
    file_digest,
    is_packed,
    item_type,
    lengths,
)
from mue.data.prepared.item import Row, splits_of
from mue.data.prepared.splits import SPLITS, Split
from mue.errors import MueError

_MAX_META_BYTES, _MAX_INDEX_BYTES = 1 << 20, 1 << 30
VERIFIED_BYTES = 1 << 30
"""Bytes of the largest file whose digest is compared whenever prepared data is used."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared folder, opened: the arrays are memory-mapped.

    Attributes:
        items: For each image `h`, `w`, `raters`, `mean` and `deviation` of its channels, and
            `foreground`: up to 32 annotated pixels as row · w + column, else -1.
        q: Weights of the raters of each image, which sum to 1; 0 where there is no rater.
        images: All images, flat; image i is from `image_start[i]` on.
        masks: All masks, flat bytes; those of image i are from `mask_start[i]` on.
        digest: sha256 of `meta.json`, which holds those of the other files.
    """

    folder: Path
    meta: Meta
    origin: dict[str, Any]
    rows: tuple[Row, ...]
    items: np.ndarray
    q: NDArray[np.float32]
    images: np.ndarray
    masks: NDArray[np.uint8]
    digest: str
    image_start: NDArray[np.int64] = field(init=False)
    mask_start: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        """Where images and masks begin follows from their sizes."""
        values, mask_bytes = lengths(self.meta, self.items)
        object.__setattr__(self, "image_start", np.concatenate([[0], values.cumsum()]))
        object.__setattr__(self, "mask_start", np.concatenate([[0], mask_bytes.cumsum()]))

    @property
    def raters(self) -> int:
        """Largest number of masks of an image."""
        return self.q.shape[1]

    @property
    def known(self) -> bool:
        """Whether the raters give all answers there are, by their probability."""
        return bool(self.origin.get(KNOWN))

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Every height and width that an image has, ascending."""
        return sorted(set(zip(self.items["h"].tolist(), self.items["w"].tolist(), strict=True)))

    @property
    def packed(self) -> bool:
        """Whether a mask has a bit for each pixel; else a byte, its class."""
        return is_packed(self.meta.labels)

    def image(self, i: int) -> Shaped[np.ndarray, "c h w"]:
        """The values of an image, as in its file."""
        flat = self.images[self.image_start[i] : self.image_start[i + 1]]
        return flat.reshape(self.meta.channels, self.items["h"][i], self.items["w"][i])

    def masks_of(self, i: int) -> UInt8[np.ndarray, "r h w"]:
        """The class of each pixel of an image by each of its raters."""
        shape = tuple(self.items[["raters", "h", "w"]][i].tolist())
        flat = self.masks[self.mask_start[i] : self.mask_start[i + 1]].reshape(shape[0], -1)
        if self.packed:
            flat = np.unpackbits(flat, axis=1, count=shape[1] * shape[2])
        return flat.reshape(shape)

    def members(self, split: Split) -> NDArray[np.int64]:
        """Indices of the images of a split, ascending."""
        if split not in SPLITS:
            raise MueError(f"`split` must be one of {', '.join(SPLITS)}, got {split!r}")
        found = [i for i, each in enumerate(splits_of(self.rows)) if each == split]
        return np.array(found, dtype=np.int64)

    def volumes(self) -> dict[tuple[str, str], Geometry]:
        """The geometry of each volume, by its patient and case."""
        path = self.folder / VOLUMES
        try:
            found = dict(map(_volume, json.loads(_read(path, _MAX_INDEX_BYTES))))
            for row, (h, w) in zip(self.rows, self.items[["h", "w"]].tolist(), strict=True):
                if (g := found.get(row.key[:2])) is not None and g.slice_size != (h, w):
                    raise MueError(f"{row.id} has {h} x {w} pixels, and its volume {g.slice_size}")
        except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise MueError(f"{path} must list volumes: {error}; import it again") from None
        return found


def open_prepared(folder: str | Path, *, verify: bool = False) -> Prepared:
    """Open a prepared folder. Only the index is read; `verify` reads all and compares digests."""
    folder = Path(folder)
    if verify:
        verify_prepared(folder, max_bytes=None)
    content, meta, origin, _ = _open_meta(folder)
    rows, weights = _read_index(folder / INDEX)
    if len(rows) != meta.images:
        raise MueError(
            f"{folder / INDEX} must have {meta.images} slices, got {len(rows)}; import it again"
        )
    items = _read_items(folder / ITEMS, meta)
    values, mask_bytes = (int(length.sum()) for length in lengths(meta, items))
    return Prepared(
        folder=folder,
        meta=meta,
        origin=origin,
        rows=rows,
        items=items,
        q=_rater_weights(folder / INDEX, items["raters"], weights),
        images=_map(folder / IMAGES, np.dtype(meta.dtype), values),
        masks=_map(folder / MASKS, np.dtype(np.uint8), mask_bytes),
        digest=hashlib.sha256(content).hexdigest(),
    )


def verify_prepared(folder: str | Path, *, max_bytes: int | None = VERIFIED_BYTES) -> None:
    """Refuse a prepared folder whose files have changed since the import, by their digests.

    To compare a GiB takes one to three seconds. So larger files are compared by `mue data inspect
    --verify` alone, with `max_bytes` None.
    """
    folder = Path(folder)
    *_, digests = _open_meta(folder)
    for name, digest in digests.items():
        path = folder / name
        small = path.is_file() and (max_bytes is None or path.stat().st_size <= max_bytes)
        if not path.is_file() or (small and file_digest(path) != digest):
            raise MueError(f"{path} is not what was imported; import it again")


def _open_meta(folder: Path) -> tuple[bytes, Meta, dict[str, Any], dict[str, str]]:
    """The content of `meta.json`, and what it says."""
    path = folder / META
    if not path.is_file():
        raise MueError(
            f"{folder} is not prepared data: it must hold {META}; make it by `mue data import`"
        )
    content = _read(path, _MAX_META_BYTES)
    return content, *_read_meta(path, content)


def _read(path: Path, max_bytes: int) -> bytes:
    if not path.is_file():
        raise MueError(f"{path} must be a file")
    if path.stat().st_size > max_bytes:
        raise MueError(f"{path} must have at most {max_bytes} bytes, got {path.stat().st_size}")
    return path.read_bytes()


def _read_meta(path: Path, content: bytes) -> tuple[Meta, dict[str, Any], dict[str, str]]:
    """What `meta.json` says, where the images came from, and the digests of the files."""
    try:
        given = json.loads(content)
        if not isinstance(given, dict):
            raise MueError("it is no object")
        if (form := given["format"]) != FORMAT:
            raise MueError(f"its format must be {FORMAT!r}, got {form!r}")
        optional = {"values", "bits"}  # which older data do not have
        names = {f.name for f in fields(Meta)} - (optional - given.keys())
        meta = from_dict(Meta, {name: given[name] for name in names}, META)
        check_values(meta.values, meta.labels, "its values")
        origin, digests = given["origin"], given["sha256"]
        if not isinstance(origin, dict) or not isinstance(digests, dict):
            raise MueError("its origin and sha256 must be objects")
        if set(digests) != {INDEX, ITEMS, IMAGES, MASKS, VOLUMES}:
            raise MueError("its sha256 must be those of the other files")
        counts = meta.images >= 1 and 1 <= meta.channels <= MAX_CHANNELS
        if not counts or len(meta.labels) > MAX_CLASSES:
            raise MueError("it must have at least one image and channel, and at most 256 labels")
        if not all(1 <= bits <= 16 for bits in meta.bits):
            raise MueError(f"its bits must be in 1..16, got {meta.bits}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MueError(
            f"{path} must describe prepared images, and does not: {error}; import it again"
        ) from None
    return meta, origin, digests


def _read_index(path: Path) -> tuple[tuple[Row, ...], list[str]]:
    """The rows, and the weights of their raters as they are written."""
    try:
        table = csv.reader(io.StringIO(_read(path, _MAX_INDEX_BYTES).decode(), newline=""))
        if tuple(next(table, ())) != COLUMNS:
            raise MueError("its first line differs")
        lines = list(table)
        return tuple(_row(cells[:-1]) for cells in lines), [cells[-1] for cells in lines]
    except (OSError, ValueError, KeyError, IndexError, csv.Error) as error:
        raise MueError(
            f"{path} must be a table of {', '.join(COLUMNS)}, and is not: {error}; import it again"
        ) from None


_SPLIT: dict[str, Split | None] = {"": None, "train": "train", "val": "val", "test": "test"}


def _row(cells: list[str]) -> Row:
    patient, case, name, source, spacing, split = cells
    y, x = map(float, spacing.split()) if spacing else (0.0, 0.0)
    return Row(
        patient=patient,
        case=case,
        slice=name,
        source=source,
        spacing=(y, x) if spacing else None,
        split=_SPLIT[split],
    )


def _volume(entry: Any) -> tuple[tuple[str, str], Geometry]:
    """The name of a volume, and its geometry."""
    patient, case, affine, shape, axis = entry
    if not isinstance(patient, str) or not isinstance(case, str):
        raise MueError("a volume must have the names of a patient and a case")
    if len(shape) != 3 or any(type(n) is not int or n < 1 for n in shape):
        raise MueError(f"a volume must have three sizes, got {shape}")
    if type(axis) is not int or axis not in (0, 1, 2):
        raise MueError(f"a volume must be cut along the axis 0, 1 or 2, got {axis!r}")
    matrix = np.array(affine, dtype=np.float64)
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all():
        raise MueError(f"a volume must have an affine of 4 x 4 numbers, got {affine}")
    return (patient, case), Geometry(matrix, (shape[0], shape[1], shape[2]), axis)


def _read_items(path: Path, meta: Meta) -> np.ndarray:
    try:
        if not path.is_file():
            raise MueError("it is no file")
        with path.open("rb") as file:
            if npy.read_magic(file) != (1, 0):  # whose header is short
                raise MueError("it is of another version of npy")
        items = npy.open_memmap(path, mode="r")
    except Exception as error:  # for a damaged header, numpy raises any
        raise MueError(f"{path} must be a whole array: {error}; import it again") from None
    if items.dtype != item_type(meta.channels) or items.shape != (meta.images,):
        raise MueError(
            f"{path} must describe {meta.images} images of {meta.channels} channels, "
            f"got {items.shape}; import it again"
        )
    h, w, raters = (items[name].astype(np.int64) for name in ("h", "w", "raters"))
    pixels, pixel = h * w, items["foreground"]
    whole = (np.minimum(np.minimum(h, w), raters) > 0) & (pixels < MAX_ITEM_PIXELS)
    whole &= (raters <= MAX_RATERS) & ((pixel >= -1) & (pixel < pixels[:, None])).all(axis=1)
    if not whole.all():
        i = int(np.argmin(whole))
        raise MueError(f"{path} must give each image a size, and not image {i}; import it again")
    return items


def _rater_weights(path: Path, raters: np.ndarray, weights: list[str]) -> NDArray[np.float32]:
    """The weights of raters: equal, or those that are written."""
    here = np.arange(raters.max()) < raters[:, None]
    q = (here / raters[:, None]).astype(np.float32)
    for i, text in enumerate(weights):
        if text:
            try:
                given = np.array(text.split(), dtype=np.float64)
                q[i, : raters[i]] = given / given.sum()
            except ValueError:
                given = np.array([-1.0])
            if not ((given >= 0).all() and given.sum() > 0 and np.isfinite(given).all()):
                raise MueError(
                    f"{path} must have {raters[i]} weights for image {i}, got {text!r}; "
                    "import it again"
                )
    return q


def _map(path: Path, dtype: np.dtype, values: int) -> np.ndarray:
    size = path.stat().st_size if path.is_file() else 0
    if size != values * dtype.itemsize:
        raise MueError(
            f"{path} must have {values * dtype.itemsize} bytes, got {size}; import it again"
        )
    return np.memmap(path, dtype=dtype.newbyteorder("<"), mode="r")
