"""The two PNG layouts, where a slice is five files: an image and the masks of four raters.

slices   LIDC-IDRI-XXXX/nodule-N/{images,mask-0..3}/slice-K.png
crops    {train,val,test}/images/….png and gt/…_l0..l3.png, of the Probabilistic U-Net
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from mue.data.lidc.archive import MAX_FILE_BYTES, ByteProgress, File, iterate_files
from mue.data.lidc.options import RATERS, Options, center_crop
from mue.data.prepared.item import Item, Key, Rejected
from mue.errors import MueError

_SLICES = re.compile(
    r"(?:.*/)?(?P<patient>[^/]+)/(?P<nodule>nodule-[^/]+)"
    r"/(?:images|mask-(?P<mask>\d{1,3}))/(?P<slice>slice-[^/]+)\.png",
    re.IGNORECASE,
)
_CROPS = re.compile(
    r"(?:.*/)?(?:images/(?P<image>.+)|gt/(?P<truth>.+)_l(?P<mask>\d{1,3}))\.png", re.IGNORECASE
)
_CROP_STEM = re.compile(r"(?P<slice>.+?)(?:_(?P<crop>c\d+))?")
_CROP_PATIENT = re.compile(r"(?P<patient>LIDC-IDRI-\d+|[^_]+)_(?P<stem>.+)")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_END = b"IEND\xaeB`\x82"
_MAX_SIDE = 4096


# --- names ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """What the name of a file says.

    Attributes:
        key: The slice it belongs to.
        mask: The number of the mask, or None for the image.
    """

    key: Key
    mask: int | None


def parse_slices(name: str) -> Part | None:
    """What a file of the slices layout is, by its path.

    >>> parse_slices("LIDC-IDRI-0003/nodule-1/mask-2/slice-0.png")
    Part(key=('LIDC-IDRI-0003', 'nodule-1', 'slice-0'), mask=2)
    >>> parse_slices("LIDC-IDRI-0003/nodule-1/notes.txt")
    """
    found = _SLICES.fullmatch(name)
    if found is None:
        return None
    key = (found["patient"], found["nodule"], found["slice"])
    return Part(key, None if found["mask"] is None else int(found["mask"]))


def parse_crops(name: str) -> Part | None:
    """What a file of the crops layout is, by its path.

    The crops are numbered within a slice, not by lesion, so a `nodule` here is the crop's number
    and the same lesion may have another one in the next slice.

    >>> parse_crops("train/gt/LIDC-IDRI-0001/z-105.0_c0_l3.png")
    Part(key=('LIDC-IDRI-0001', 'c0', 'z-105.0'), mask=3)
    >>> parse_crops("train/images/LIDC-IDRI-0001_z-105.0_c1.png")
    Part(key=('LIDC-IDRI-0001', 'c1', 'z-105.0'), mask=None)
    """
    found = _CROPS.fullmatch(name)
    if found is None:
        return None
    patient, _, stem = (found["image"] or found["truth"]).partition("/")
    if not stem:
        split = _CROP_PATIENT.fullmatch(patient)
        patient, stem = (split["patient"], split["stem"]) if split else (patient, patient)
    parts = _CROP_STEM.fullmatch(stem)
    assert parts is not None
    key = (patient, parts["crop"] or "c0", parts["slice"].replace("/", "_"))
    return Part(key, None if found["mask"] is None else int(found["mask"]))


# --- slices ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Incomplete:
    """The files of a slice that were found so far, still compressed."""

    image: File | None = None
    masks: dict[int, File] = field(default_factory=dict)


def read(
    sources: Sequence[Path],
    parse: Callable[[str], Part | None],
    options: Options,
    progress: ByteProgress,
) -> Iterator[Item | Rejected]:
    """Assemble slices from sources that are read once, each as soon as its files are complete.

    Only incomplete slices are kept, so memory does not grow with the source. A surplus file that
    is found late, a fifth mask or a second image, comes as a Rejected with the item's key.

    Args:
        sources: Folders and archives. All files of a slice are in one of them.
        parse: What a file is, by its name; None for a file of no slice.
        options: The size of the crops.
        progress: Updated with the bytes read.
    """
    source_of: dict[Key, Path] = {}  # of slices that are done, imported or not
    for source in sources:
        incomplete: dict[Key, _Incomplete] = {}
        reported: set[Key] = set()
        for file in iterate_files(
            source, lambda name: MAX_FILE_BYTES if parse(name) else 0, progress
        ):
            if isinstance(file, Rejected):
                yield file
                continue
            part = parse(file.name)
            assert part is not None
            key = part.key
            if source_of.get(key, source) != source:
                if key not in reported:
                    reported.add(key)
                    yield Rejected(
                        file.path, f"is a slice that {source_of[key].name} has already brought"
                    )
                continue
            if surplus := _surplus(part, incomplete.get(key), key in source_of):
                if key not in reported:
                    reported.add(key)
                    yield Rejected(file.path, surplus, key)
                incomplete.pop(key, None)
                source_of[key] = source
                continue
            files = incomplete.setdefault(key, _Incomplete())
            if part.mask is None:
                files.image = file
            else:
                files.masks[part.mask] = file
            if files.image is not None and len(files.masks) == RATERS:
                source_of[key] = source
                yield _item(incomplete.pop(key), key, options)
        for key, files in incomplete.items():
            source_of[key] = source
            yield _missing(key, files)


def _surplus(part: Part, files: _Incomplete | None, complete: bool) -> str | None:
    """Why a file is one too many for its slice, if it is."""
    if part.mask is None:
        if complete or (files is not None and files.image is not None):
            return "is a second image of the same slice"
        return None
    masks = {} if files is None else files.masks
    if complete or part.mask in masks or len(masks) == RATERS:
        return f"is one mask more than the {RATERS} of its slice"
    return None


def _item(files: _Incomplete, key: Key, options: Options) -> Item | Rejected:
    """A slice, decoded."""
    assert files.image is not None
    path = files.image.path
    try:
        image = decode_image(files.image.data)
        masks = []
        for _, file in sorted(files.masks.items()):
            path = file.path
            mask = decode_mask(file.data)
            if mask.shape != image.shape:
                raise MueError(
                    f"is {_size(mask)} pixels and its image {_size(image)}; they must be the same"
                )
            masks.append(mask)
        path = files.image.path
        image, stack = center_crop(image, np.stack(masks), options.size)
    except ValueError as error:
        return Rejected(path, str(error))
    return Item(*key, image, stack, None, path)


def _missing(key: Key, files: _Incomplete) -> Rejected:
    """What an incomplete slice lacks."""
    if files.image is None:
        return Rejected("/".join(key), f"has {len(files.masks)} masks but no image")
    return Rejected(files.image.path, f"has {len(files.masks)} masks; a slice has {RATERS}")


def _size(array: np.ndarray) -> str:
    return "×".join(map(str, array.shape))


# --- pixels ---------------------------------------------------------------------------------------


def decode_image(data: bytes) -> UInt8[np.ndarray, "h w"]:
    """The grey values of a PNG.

    Raises:
        MueError: With a clause that says what is wrong, to follow on the file's name.
    """
    if not data.startswith(_SIGNATURE) or len(data) < 24:
        raise MueError("is not a PNG")
    w, h = struct.unpack(">II", data[16:24])  # before memory of that size is taken
    if not (0 < w <= _MAX_SIDE and 0 < h <= _MAX_SIDE):
        raise MueError(f"is {h}×{w} pixels; at most {_MAX_SIDE}×{_MAX_SIDE} are read")
    if _END not in data:
        raise MueError("is a truncated PNG")
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            if image.mode.startswith(("I", "F")):
                raise MueError("has more than 8 bits a pixel; convert it to 8-bit grey")
            return np.array(image.convert("L"))
    except (OSError, SyntaxError, EOFError, struct.error, zlib.error) as error:
        raise MueError(f"is a truncated or damaged PNG ({error})") from error


@lru_cache(maxsize=64)
def decode_mask(data: bytes) -> Bool[np.ndarray, "h w"]:
    """The mask in a PNG, of 0 and 255 or of 0 and 1. Read-only: equal files share one array."""
    mask = binarize(decode_image(data))
    mask.setflags(write=False)
    return mask


def binarize(values: np.ndarray) -> np.ndarray:
    """Values above one half of 1, or of 255 where any value is above 1."""
    return values > (127 if values.size and values.max() > 1 else 0.5)
