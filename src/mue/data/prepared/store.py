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

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Shaped, UInt8
from numpy.lib import format as npy
from numpy.typing import NDArray

from mue.config.json import from_dict
from mue.config.schema import NormalizeConfig, check_values
from mue.data.images.image import Geometry
from mue.data.normalize import choose_normalization
from mue.data.order import natural
from mue.data.prepared.encode import (
    MAX_CHANNELS,
    MAX_PIXELS,
    MAX_RATERS,
    Dtype,
    Encoded,
    encode,
    item_type,
)
from mue.data.prepared.item import Item, Key, Rejected, Row
from mue.data.prepared.splits import SPLITS, Split, split_of
from mue.errors import MueError
from mue.runtime.atomic import new_folder

META, INDEX, ITEMS, VOLUMES = "meta.json", "index.csv", "items.npy", "volumes.json"
IMAGES, MASKS = "images.bin", "masks.bin"
FORMAT = "mue prepared 2"
MAX_CLASSES = 256
KNOWN = "known_probabilities"
"""What the origin says of data whose raters give all answers there are, by their probability."""
_COLUMNS = (*(field.name for field in fields(Row)), "weights")
_MAX_META_BYTES, _MAX_INDEX_BYTES = 1 << 20, 1 << 30
_SYNC_BYTES = 1 << 26
VERIFIED_BYTES = 1 << 30
"""Bytes of the largest file whose digest is compared whenever prepared data is used."""


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
        values, mask_bytes = _lengths(self.meta, self.items)
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
        return len(self.meta.labels) <= 2

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
        found = [i for i, each in enumerate(_splits(self.rows)) if each == split]
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


def _splits(rows: Sequence[Row]) -> list[Split]:
    """The split of each image: the one of its source, or by its patient."""
    by_patient: dict[str, Split] = {name: split_of(name) for name in {row.patient for row in rows}}
    return [row.split or by_patient[row.patient] for row in rows]


def _lengths(meta: Meta, items: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Values of each image, and bytes of its masks."""
    pixels = items["h"].astype(np.int64) * items["w"]
    mask = -(-pixels // 8) if len(meta.labels) <= 2 else pixels
    return meta.channels * pixels, mask * items["raters"]


# --- writing --------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """An image that was written."""

    row: Row
    weights: tuple[float, ...] | None
    geometry: Geometry | None
    record: bytes
    foreground: np.ndarray  # values of the annotated pixels that are listed
    bits: int  # in use of a value
    dtype: np.dtype
    at: tuple[int, int]  # where its pixels and its masks begin


def write_prepared(
    items: Iterable[Item | Encoded | Rejected],
    out: Path,
    origin: dict[str, Any],
    *,
    labels: Sequence[str] = (),
    values: Sequence[int] = (),
    ct: bool = False,
    skip_bad: bool = False,
) -> tuple[Rejected, ...]:
    """Write images to a new prepared folder, whole or not at all, ordered by their names.

    The images come in any order and are not kept in memory: they are written as they come, and
    copied in order at the end where they were not. Returns what could not be imported, which
    without `skip_bad` is an error.

    Volumes of several types are stored in one that has the values of all. Pictures must have one
    type: 200 is bright as a byte, and black in 16 bits.

    `labels` names the classes, the background first, and `values` are theirs in the files. `ct`
    says that pixels are Hounsfield units, which decides their normalization.
    """
    entries: dict[Key, _Entry] = {}
    rejected: list[Rejected] = []
    kind: tuple[np.dtype, int] | None = None
    with new_folder(out) as folder:
        with _Output(folder / IMAGES) as images, _Output(folder / MASKS) as masks:
            for item in items:
                found = encode(item, labels) if isinstance(item, Item) else item
                if isinstance(found, Encoded):
                    found = _checked(found, kind, entries)
                if isinstance(found, Encoded):
                    kind = found.image.dtype, len(found.image)
                    entries[found.row.key] = _Entry(
                        found.row,
                        found.weights,
                        found.geometry,
                        found.record,
                        found.foreground,
                        found.bits or 8 * found.image.itemsize,
                        found.image.dtype,
                        (images.size, masks.size),
                    )
                    images.write(found.image)
                    masks.write(found.masks)
                    continue
                if not skip_bad:
                    raise MueError(
                        f"{found.what}: {found.why}; correct it, or import the rest with --skip-bad"
                    )
                rejected.append(found)
                if found.key is not None:
                    entries.pop(found.key, None)
        if kind is None or not entries:
            why = f": {rejected[0].what}: {rejected[0].why}" if rejected else ""
            raise MueError(f"the source must hold at least one whole slice, and has none{why}")
        ordered = [entries[key] for key in sorted(entries, key=lambda key: natural(*key))]
        dtype, channels = _common_type({entry.dtype for entry in ordered}), kind[1]
        meta = Meta(
            format=FORMAT,
            images=len(ordered),
            dtype=cast("Any", dtype.name),
            channels=channels,
            labels=tuple(labels),
            values=tuple(values),
            bits=_bits_in_use(ordered, dtype),
            normalize=choose_normalization(
                dtype,
                ct=ct,
                foreground=np.concatenate([e.foreground for e in _for_training(ordered)], axis=1),
            ),
            left_out=len(rejected),
        )
        _write_tables(folder, meta, ordered, (images, masks))
        digests = {
            INDEX: _digest(folder / INDEX),
            ITEMS: _digest(folder / ITEMS),
            IMAGES: images.digest(),
            MASKS: masks.digest(),
            VOLUMES: _digest(folder / VOLUMES),
        }
        content = asdict(meta) | {"origin": origin, "sha256": digests}
        (folder / META).write_text(json.dumps(content, indent=2) + "\n")
    return tuple(rejected)


def _common_type(types: set[np.dtype]) -> np.dtype:
    """A type that has the values of all; whether float32 has those of int32, `_converted` sees."""
    common = np.result_type(*types)
    return np.dtype("<f4") if common == np.float64 else common


def _converted(content: bytes, entry: _Entry, dtype: np.dtype) -> bytes:
    """The values of an image in another type."""
    values = np.frombuffer(content, entry.dtype)
    found = values.astype(dtype)
    if not np.array_equal(found.astype(np.float64), values.astype(np.float64)):
        raise MueError(
            f"{entry.row.source} has whole numbers up to {abs(values.astype(np.int64)).max()}, "
            f"which {dtype.name}, the type of other volumes, does not hold; rescale or round it"
        )
    return found.tobytes()


def _bits_in_use(entries: Iterable[_Entry], dtype: np.dtype) -> tuple[int, ...]:
    """Bits of unsigned values that are in use, ascending; none where these are all of the type."""
    found = {entry.bits for entry in entries}
    return tuple(sorted(found)) if dtype.kind == "u" and found != {8 * dtype.itemsize} else ()


def _for_training(entries: Sequence[_Entry]) -> Sequence[_Entry]:
    """Those of the train split, or all where there is none: a test set decides nothing."""
    splits = _splits([entry.row for entry in entries])
    return [e for e, split in zip(entries, splits, strict=True) if split == "train"] or entries


def _checked(
    item: Encoded, kind: tuple[np.dtype, int] | None, entries: Mapping[Key, object]
) -> Encoded | Rejected:
    """An image if it goes with those before it: of their type and channels, under its own name."""
    dtype, c = item.image.dtype, len(item.image)
    same = kind is None or (c == kind[1] and (dtype == kind[0] or item.geometry is not None))
    if kind is not None and not same:
        why = f"has {c} channels of {dtype}, and the images before it have {kind[1]} of {kind[0]}"
        return Rejected(item.row.source, why)
    if item.row.key in entries:
        return Rejected(item.row.source, f"is a second image of the name {item.row.id}")
    return item


class _Output:
    """A file that goes to the disk while it is written, so that there is little to wait for."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self._synced = path, 0, 0
        self._sha256 = hashlib.sha256()
        self._file = path.open("wb")
        self._pool = ThreadPoolExecutor(1)

    def write(self, array: np.ndarray) -> None:
        """Append the bytes of an array."""
        content = array.data.cast("B")
        self.size += self._file.write(content)
        self._sha256.update(content)
        if self.size - self._synced >= _SYNC_BYTES:
            self._synced = self.size
            self._pool.submit(os.fsync, self._file.fileno())

    def reorder(
        self,
        starts: Sequence[int],
        lengths: Sequence[int],
        convert: Callable[[int, bytes], bytes] | None = None,
    ) -> None:
        """Rewrite the closed file as these pieces of it, unless it is so already.

        `convert` gives the bytes to write for a piece, by its number.
        """
        ends = np.cumsum(lengths).tolist()
        if convert is None and list(starts) == [0, *ends[:-1]] and self.size == ends[-1]:
            return
        unsorted = self.path.rename(self.path.with_name("unsorted"))
        self._sha256 = hashlib.sha256()
        with unsorted.open("rb") as source, self.path.open("wb") as target:
            for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
                source.seek(start)
                content = source.read(length)
                content = content if convert is None else convert(i, content)
                target.write(content)
                self._sha256.update(content)
        unsorted.unlink()

    def digest(self) -> str:
        """The sha256 of the file."""
        return self._sha256.hexdigest()

    def __enter__(self) -> "_Output":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._file.close()


def _write_tables(
    folder: Path, meta: Meta, entries: Sequence[_Entry], outputs: tuple[_Output, _Output]
) -> None:
    """Everything but `meta.json`; images and masks are put in order."""
    items = np.frombuffer(b"".join(e.record for e in entries), item_type(meta.channels))
    (folder / ITEMS).write_bytes(_npy(items))
    (values, mask_bytes), dtype = _lengths(meta, items), np.dtype(meta.dtype).newbyteorder("<")
    sizes = [int(n) * e.dtype.itemsize for n, e in zip(values, entries, strict=True)]
    several = any(entry.dtype != dtype for entry in entries)
    convert = (lambda i, content: _converted(content, entries[i], dtype)) if several else None
    outputs[0].reorder([entry.at[0] for entry in entries], sizes, convert)
    outputs[1].reorder([entry.at[1] for entry in entries], mask_bytes.tolist())
    table = csv.writer(lines := _Lines(newline=""))
    table.writerow(_COLUMNS)
    table.writerows(_cells(entry) for entry in entries)
    (folder / INDEX).write_bytes(lines.getvalue().encode())
    volumes = {entry.row.key[:2]: entry.geometry for entry in entries if entry.geometry}
    listed = [[*key, g.affine.tolist(), g.shape, g.axis] for key, g in volumes.items()]
    (folder / VOLUMES).write_text(json.dumps(listed) + "\n")


def _npy(array: np.ndarray) -> bytes:
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def _cells(entry: _Entry) -> list[str]:
    row = entry.row
    spacing, weights = (" ".join(map(repr, v or ())) for v in (row.spacing, entry.weights))
    return [*row.key, row.source, spacing, row.split or "", weights]


class _Lines(io.StringIO):
    r"""Ends lines by \n. The csv writer ends them by \r\n, and so quotes names with either."""

    def write(self, line: str) -> int:
        return super().write(line.removesuffix("\r\n") + "\n")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- opening --------------------------------------------------------------------------------------


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
    values, mask_bytes = (int(length.sum()) for length in _lengths(meta, items))
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
        if not path.is_file() or (small and _digest(path) != digest):
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
        if tuple(next(table, ())) != _COLUMNS:
            raise MueError("its first line differs")
        lines = list(table)
        return tuple(_row(cells[:-1]) for cells in lines), [cells[-1] for cells in lines]
    except (OSError, ValueError, KeyError, IndexError, csv.Error) as error:
        raise MueError(
            f"{path} must be a table of {', '.join(_COLUMNS)}, and is not: {error}; import it again"
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
    whole = (np.minimum(np.minimum(h, w), raters) > 0) & (pixels < MAX_PIXELS)
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
