"""Images as a new prepared folder, written as they come and put in order at the end."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np

from mue.data.normalize import choose_normalization
from mue.data.order import natural
from mue.data.prepared.encode import Encoded, encode
from mue.data.prepared.format import (
    COLUMNS,
    FORMAT,
    IMAGES,
    INDEX,
    ITEMS,
    MASKS,
    META,
    VOLUMES,
    Meta,
    file_digest,
    item_type,
    lengths,
)
from mue.data.prepared.item import Item, Key, Rejected, splits_of
from mue.errors import MueError
from mue.runtime.atomic import new_folder

_SYNC_BYTES = 1 << 26


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
    entries: dict[Key, Encoded] = {}  # without their pixels
    begins: dict[Key, tuple[int, int]] = {}  # the pixels and the masks of each
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
                    entries[found.row.key] = found.without_pixels()
                    begins[found.row.key] = images.size, masks.size
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
        dtype, channels = _common_type({entry.image.dtype for entry in ordered}), kind[1]
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
        starts = zip(*(begins[entry.row.key] for entry in ordered), strict=True)
        _put_in_order(meta, ordered, (images, masks), [list(each) for each in starts])
        _write_tables(folder, meta, ordered)
        digests = {
            INDEX: file_digest(folder / INDEX),
            ITEMS: file_digest(folder / ITEMS),
            IMAGES: images.digest(),
            MASKS: masks.digest(),
            VOLUMES: file_digest(folder / VOLUMES),
        }
        content = asdict(meta) | {"origin": origin, "sha256": digests}
        (folder / META).write_text(json.dumps(content, indent=2) + "\n")
    return tuple(rejected)


def _common_type(types: set[np.dtype]) -> np.dtype:
    """A type that has the values of all; whether float32 has those of int32, `_converted` sees."""
    common = np.result_type(*types)
    return np.dtype("<f4") if common == np.float64 else common


def _converted(content: bytes, entry: Encoded, dtype: np.dtype) -> bytes:
    """The values of an image in another type."""
    values = np.frombuffer(content, entry.image.dtype)
    found = values.astype(dtype)
    if not np.array_equal(found.astype(np.float64), values.astype(np.float64)):
        raise MueError(
            f"{entry.row.source} has whole numbers up to {abs(values.astype(np.int64)).max()}, "
            f"which {dtype.name}, the type of other volumes, does not hold; rescale or round it"
        )
    return found.tobytes()


def _bits_in_use(entries: Iterable[Encoded], dtype: np.dtype) -> tuple[int, ...]:
    """Bits of unsigned values that are in use, ascending; none where these are all of the type."""
    found = {entry.bits or 8 * entry.image.itemsize for entry in entries}
    return tuple(sorted(found)) if dtype.kind == "u" and found != {8 * dtype.itemsize} else ()


def _for_training(entries: Sequence[Encoded]) -> Sequence[Encoded]:
    """Those of the train split, or all where there is none: a test set decides nothing."""
    splits = splits_of([entry.row for entry in entries])
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


def _put_in_order(
    meta: Meta,
    entries: Sequence[Encoded],
    outputs: tuple[_Output, _Output],
    starts: Sequence[Sequence[int]],
) -> None:
    """Images and masks one after another as in the index, the images of one type."""
    items = np.frombuffer(b"".join(e.record for e in entries), item_type(meta.channels))
    (values, mask_bytes), dtype = lengths(meta, items), np.dtype(meta.dtype).newbyteorder("<")
    sizes = [int(n) * e.image.itemsize for n, e in zip(values, entries, strict=True)]
    several = any(entry.image.dtype != dtype for entry in entries)
    convert = (lambda i, content: _converted(content, entries[i], dtype)) if several else None
    outputs[0].reorder(starts[0], sizes, convert)
    outputs[1].reorder(starts[1], mask_bytes.tolist())


def _write_tables(folder: Path, meta: Meta, entries: Sequence[Encoded]) -> None:
    """Everything but `meta.json`, the images and the masks."""
    items = np.frombuffer(b"".join(e.record for e in entries), item_type(meta.channels))
    (folder / ITEMS).write_bytes(_npy(items))
    table = csv.writer(lines := _Lines(newline=""))
    table.writerow(COLUMNS)
    table.writerows(_cells(entry) for entry in entries)
    (folder / INDEX).write_bytes(lines.getvalue().encode())
    volumes = {entry.row.key[:2]: entry.geometry for entry in entries if entry.geometry}
    listed = [[*key, g.affine.tolist(), g.shape, g.axis] for key, g in volumes.items()]
    (folder / VOLUMES).write_text(json.dumps(listed) + "\n")


def _npy(array: np.ndarray) -> bytes:
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def _cells(entry: Encoded) -> list[str]:
    row = entry.row
    spacing, weights = (" ".join(map(repr, v or ())) for v in (row.spacing, entry.weights))
    return [*row.key, row.source, spacing, row.split or "", weights]


class _Lines(io.StringIO):
    r"""Ends lines by \n. The csv writer ends them by \r\n, and so quotes names with either."""

    def write(self, line: str) -> int:
        return super().write(line.removesuffix("\r\n") + "\n")
