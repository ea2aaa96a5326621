"""The prepared form of annotated slices: a folder whose arrays are memory-mapped.

    meta.json    format, size, number of raters, origin, and the sha256 of the other files
    index.csv    a line for each slice: patient, case, slice, source, spacing in mm, split
    images.npy   n h w bytes
    masks.npy    n r ceil(h w / 8) bytes: a bit for each pixel, row by row, the first pixel highest

Nothing in it depends on when or where it was written: the same source gives the same bytes. Splits
are not stored, they are computed from the patient's name.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from mue.atomic import new_folder
from mue.data.prepared.item import Item, Key, Rejected, Row
from mue.data.prepared.splits import SPLITS, Split, split_of
from mue.errors import MueError

META, INDEX, IMAGES, MASKS = "meta.json", "index.csv", "images.npy", "masks.npy"
FORMAT = "mue prepared slices 1"
_COLUMNS = tuple(field.name for field in fields(Row))
_MAX_META_BYTES, _MAX_INDEX_BYTES = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared folder, opened: the arrays are memory-mapped."""

    folder: Path
    meta: dict[str, Any]  # the content of `meta.json`
    rows: tuple[Row, ...]  # one for each slice
    images: NDArray[np.uint8]
    masks: NDArray[np.uint8]  # packed bits
    digest: str  # sha256 of `meta.json`, which holds those of the other files

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a slice."""
        return self.images.shape[1], self.images.shape[2]

    @property
    def raters(self) -> int:
        """Number of masks of each slice."""
        return self.masks.shape[1]

    def members(self, split: Split) -> NDArray[np.int64]:
        """Indices of the slices of a split, ascending."""
        if split not in SPLITS:
            raise MueError(f"`split` must be one of {', '.join(SPLITS)}, got {split!r}")
        member = [
            i for i, row in enumerate(self.rows) if (row.split or split_of(row.patient)) == split
        ]
        return np.array(member, dtype=np.int64)


def write_prepared(
    items: Iterable[Item | Rejected], out: Path, origin: dict[str, Any], *, skip_bad: bool = False
) -> tuple[Rejected, ...]:
    """Write slices to a new prepared folder, whole or not at all, ordered by their names.

    The slices come in any order and are not kept in memory: they are written as they come, and
    copied in order at the end. Returns what could not be imported, which without `skip_bad` is an
    error.
    """
    rows: dict[Key, tuple[int, Row]] = {}
    rejected: list[Rejected] = []
    with new_folder(out) as folder:
        shape: tuple[int, ...] | None = None
        with (folder / "unsorted").open("w+b") as unsorted:
            for item in items:
                if isinstance(item, Item):
                    shape = shape or item.masks.shape
                    if item.masks.shape == shape:
                        rows[item.key] = unsorted.tell(), _row(item)
                        bits = np.packbits(
                            item.masks.astype(bool).reshape(len(item.masks), -1), axis=1
                        )
                        unsorted.write(item.image.tobytes() + bits.tobytes())
                        continue
                    why = "is {} masks of {} x {}, and the slices before it are {} masks of {} x {}"
                    item = Rejected(item.source, why.format(*item.masks.shape, *shape))
                if not skip_bad:
                    raise MueError(
                        f"{item.what}: {item.why}; mend it, or import the rest with --skip-bad"
                    )
                rejected.append(item)
                if item.key is not None:
                    rows.pop(item.key, None)
            if shape is None or not rows:
                why = f": {rejected[0].what}: {rejected[0].why}" if rejected else ""
                raise MueError(f"the source must hold at least one whole slice, and has none{why}")
            ordered = [rows[key] for key in sorted(rows, key=_natural)]
            _sort(unsorted, [offset for offset, _ in ordered], shape, folder)
        (folder / "unsorted").unlink()
        table = csv.writer(lines := _Lines(newline=""))
        table.writerow(_COLUMNS)
        table.writerows(_cells(row) for _, row in ordered)
        (folder / INDEX).write_bytes(lines.getvalue().encode())
        meta = {
            "format": FORMAT,
            "slices": len(ordered),
            "size": list(shape[1:]),
            "raters": shape[0],
            "origin": origin,
            "left_out": len(rejected),
            "sha256": {name: _digest(folder / name) for name in (INDEX, IMAGES, MASKS)},
        }
        (folder / META).write_text(json.dumps(meta, indent=2) + "\n")
    return tuple(rejected)


def _natural(key: tuple[str, ...]) -> list[tuple[int, int, str]]:
    """A key that sorts slice-10 after slice-9."""
    parts = [p for text in key for p in (*re.split(r"(\d+)", text), "")]
    return [(0, int(p), p) if p.isdecimal() else (1, 0, p) for p in parts]


def _sort(unsorted: BinaryIO, offsets: list[int], shape: tuple[int, ...], folder: Path) -> None:
    """Copy the slices in order to their two files."""
    r, h, w = shape
    image_bytes, mask_bytes = h * w, -(-h * w // 8)
    with (folder / IMAGES).open("wb") as images, (folder / MASKS).open("wb") as masks:
        for file, sides in ((images, (h, w)), (masks, (r, mask_bytes))):
            header = {"descr": "|u1", "fortran_order": False, "shape": (len(offsets), *sides)}
            npy.write_array_header_1_0(file, header)
        for offset in offsets:
            unsorted.seek(offset)
            images.write(unsorted.read(image_bytes))
            masks.write(unsorted.read(r * mask_bytes))


def _row(item: Item) -> Row:
    return Row(**{name: getattr(item, name) for name in _COLUMNS})


def _cells(row: Row) -> list[str]:
    spacing = "" if row.spacing is None else "{!r} {!r}".format(*row.spacing)
    return [*row.key, row.source, spacing, row.split or ""]


class _Lines(io.StringIO):
    r"""Ends lines by \n. The csv writer ends them by \r\n, and so quotes names with either."""

    def write(self, line: str) -> int:
        return super().write(line.removesuffix("\r\n") + "\n")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_prepared(folder: str | Path, *, verify: bool = False) -> Prepared:
    """Open a prepared folder. Only the index is read; `verify` reads all and compares digests."""
    folder = Path(folder)
    path = folder / META
    if not path.is_file():
        raise MueError(
            f"{folder} is not prepared data: it must hold {META}; make it by `mue data import`"
        )
    content = _read(path, _MAX_META_BYTES)
    try:
        meta = json.loads(content)
        n, (h, w), raters = int(meta["slices"]), map(int, meta["size"]), int(meta["raters"])
        known = meta["format"] == FORMAT
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MueError(f"{path} must describe prepared slices, and does not: {error!r}") from None
    if not known:
        raise MueError(
            f"{path} must be of the format {FORMAT!r}, got {meta['format']!r}; import it again"
        )
    if verify:
        for name in (INDEX, IMAGES, MASKS):
            exists = (folder / name).is_file()
            if not exists or _digest(folder / name) != meta.get("sha256", {}).get(name):
                raise MueError(f"{folder / name} is not what was imported; import it again")
    rows = _read_index(folder / INDEX)
    if len(rows) != n:
        raise MueError(f"{folder / INDEX} must have {n} slices, got {len(rows)}; import it again")
    images = _map(folder / IMAGES, (n, h, w))
    masks = _map(folder / MASKS, (n, raters, -(-h * w // 8)))
    return Prepared(folder, meta, rows, images, masks, hashlib.sha256(content).hexdigest())


def _read(path: Path, max_bytes: int) -> bytes:
    if path.stat().st_size > max_bytes:
        raise MueError(f"{path} must have at most {max_bytes} bytes, got {path.stat().st_size}")
    return path.read_bytes()


def _read_index(path: Path) -> tuple[Row, ...]:
    try:
        table = csv.reader(io.StringIO(_read(path, _MAX_INDEX_BYTES).decode(), newline=""))
        if tuple(next(table, ())) != _COLUMNS:
            raise MueError("its first line differs")
        return tuple(_row_of(cells) for cells in table)
    except (OSError, ValueError, csv.Error) as error:
        raise MueError(
            f"{path} must be a table of {', '.join(_COLUMNS)}, and is not: {error}; import it again"
        ) from None


def _row_of(cells: list[str]) -> Row:
    patient, case, name, source, spacing, split = cells
    y, x = map(float, spacing.split()) if spacing else (0.0, 0.0)
    splits: dict[str, Split | None] = {"": None, "train": "train", "val": "val", "test": "test"}
    return Row(
        patient=patient,
        case=case,
        slice=name,
        source=source,
        spacing=(y, x) if spacing else None,
        split=splits[split],
    )


def _map(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    try:
        array = npy.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise MueError(f"{path} must be a whole array: {error}; import it again") from None
    if array.shape != shape or array.dtype != np.uint8:
        raise MueError(
            f"{path} must hold bytes of shape {shape}, got {array.dtype} {array.shape}; "
            "import it again"
        )
    return array
