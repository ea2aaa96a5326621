"""The two PNG layouts, where a slice is five files: an image and the masks of four raters.

slices   LIDC-IDRI-XXXX/nodule-N/{images,mask-0..3}/slice-K.png
crops    {train,val,test}/images/….png and gt/…_l0..l3.png, of the Probabilistic U-Net
"""

import re
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8

from mue.data.images.formats import PNG
from mue.data.images.png import decode_png
from mue.data.lidc import MAX_SIDE, RATERS
from mue.data.lidc.archive import MAX_FILE_BYTES, File, Progress, iterate_files
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
_MAX_KEPT = 1 << 30  # bytes of files whose slices are incomplete
Part = tuple[Key, int | None]
"""What the name of a file says: its slice, and the number of the mask or None for the image."""


def parse_slices(name: str) -> Part | None:
    """What a file of the slices layout is, by its path.

    >>> parse_slices("LIDC-IDRI-0003/nodule-1/mask-2/slice-0.png")
    (('LIDC-IDRI-0003', 'nodule-1', 'slice-0'), 2)
    >>> parse_slices("LIDC-IDRI-0003/nodule-1/notes.txt")
    """
    if (found := _SLICES.fullmatch(name)) is None:
        return None
    mask = int(found["mask"]) if found["mask"] else None
    return (found["patient"], found["nodule"], found["slice"]), mask


def parse_crops(name: str) -> Part | None:
    """What a file of the crops layout is, by its path.

    The crops are numbered within a slice, not by lesion, so a `nodule` here is the crop's number
    and the same lesion may have another one in the next slice.

    >>> parse_crops("train/gt/LIDC-IDRI-0001/z-105.0_c0_l3.png")
    (('LIDC-IDRI-0001', 'c0', 'z-105.0'), 3)
    >>> parse_crops("train/images/LIDC-IDRI-0001_z-105.0_c1.png")
    (('LIDC-IDRI-0001', 'c1', 'z-105.0'), None)
    """
    if (found := _CROPS.fullmatch(name)) is None:
        return None
    patient, _, stem = (found["image"] or found["truth"]).partition("/")
    if not stem:
        split = _CROP_PATIENT.fullmatch(patient)
        patient, stem = (split["patient"], split["stem"]) if split else (patient, patient)
    parts = _CROP_STEM.fullmatch(stem)
    assert parts is not None
    mask = int(found["mask"]) if found["mask"] else None
    return (patient, parts["crop"] or "c0", parts["slice"].replace("/", "_")), mask


def read(
    source: Path, parse: Callable[[str], Part | None], size: int | None, progress: Progress
) -> Iterator[Item | Rejected]:
    """Assemble slices from a source that is read once, each as soon as its files are complete.

    Only incomplete slices are kept, still compressed and up to 1 GiB of them, so memory does not
    grow with the source. A
    surplus file that is found late, a fifth mask or a second image, comes as a Rejected with the
    item's key. `parse` says what a file is, by its name.
    """
    incomplete: dict[Key, dict[int | None, File]] = {}  # by mask; None is the image
    complete: set[Key] = set()
    rejected: set[Key] = set()
    kept = 0
    for file in iterate_files(source, lambda name: MAX_FILE_BYTES if parse(name) else 0, progress):
        if isinstance(file, Rejected):
            yield file
            continue
        part = parse(file.name)
        assert part is not None
        key, mask = part
        if key in rejected:
            continue
        files = incomplete.pop(key, {})
        kept -= sum(len(f.data) for f in files.values())
        again = key in complete or mask in files
        files[mask] = file
        if again or len(files.keys() - {None}) > RATERS:
            rejected.add(key)
            why = f"is one mask more than the {RATERS} of its slice"
            why = why if mask is not None else "is a second image of the same slice"
            yield Rejected(file.path, why, key)
        elif len(files) <= RATERS:
            incomplete[key] = files
            kept += sum(len(f.data) for f in files.values())
            if kept > _MAX_KEPT:
                raise MueError(
                    f"{source.name} has more than {_MAX_KEPT} bytes of slices whose other files "
                    f"come late or never, the last of them {file.path}; put the files of a slice "
                    "next to each other"
                )
        else:
            complete.add(key)
            yield _item(files, key, size)
    for key, files in incomplete.items():
        image = files.pop(None, None)
        if image is None:
            yield Rejected("/".join(key), f"has {len(files)} masks but no image")
        else:
            yield Rejected(image.path, f"has {len(files)} masks; a slice has {RATERS}")


def _item(files: dict[int | None, File], key: Key, size: int | None) -> Item | Rejected:
    image_file = file = files.pop(None)
    masks: list[np.ndarray] = []
    try:
        image = decode_image(file.data)
        cropped = center_crop(image, size)
        for _, file in sorted(files.items()):
            mask = decode_mask(file.data)
            if mask.shape != image.shape:
                one, other = ("{}×{}".format(*array.shape) for array in (mask, image))
                raise MueError(f"is {one} pixels and its image {other}; they must be the same")
            masks.append(center_crop(mask, size))
    except MueError as error:
        return Rejected(file.path, str(error))
    patient, case, name = key
    return Item(
        patient=patient,
        case=case,
        slice=name,
        source=image_file.path,
        image=cropped[None],
        masks=np.stack(masks).astype(np.uint8),
    )


def decode_image(data: bytes, *, mask: bool = False) -> UInt8[np.ndarray, "h w"]:
    """The grey values of a PNG; an error is a clause that follows on the file's name.

    With `mask`, of a palette with colours the indices.
    """
    if not PNG.begins(data) or len(data) < 24:
        raise MueError("is not a PNG")
    w, h = struct.unpack(">II", data[16:24])  # before memory of that size is taken
    if not (0 < w <= MAX_SIDE and 0 < h <= MAX_SIDE):
        raise MueError(f"is {h}×{w} pixels; at most {MAX_SIDE}×{MAX_SIDE} are read")
    try:
        picture = decode_png(data)
        pixels = picture.mask() if mask else picture.image()
    except MueError:
        raise
    except Exception as error:  # for damaged bytes, the decoder raises any
        raise MueError(f"is a truncated or damaged PNG ({error})") from error
    if pixels.dtype != np.uint8:
        raise MueError("has more than 8 bits a pixel; convert it to 8-bit grey")
    if (pixels != pixels[:1]).any():
        raise MueError("is in colour; convert it to 8-bit grey")
    return np.ascontiguousarray(pixels[0])


@lru_cache(maxsize=64)
def decode_mask(data: bytes) -> Bool[np.ndarray, "h w"]:
    """The mask in a PNG, see `binarize`. Read-only: equal files share one array."""
    mask = binarize(decode_image(data, mask=True))
    mask.setflags(write=False)
    return mask


def binarize(values: np.ndarray) -> np.ndarray:
    """Where a mask, which has 0 and one other value, is not 0; more values would be classes."""
    if not np.isfinite(values).all():
        raise MueError("has a mask value that is not finite; a mask has 0 and one other value")
    marked = values != 0
    if (others := np.unique(values[marked])).size > 1:
        first = f"{others[0]:g} and {others[1]:g}"
        raise MueError(f"has mask values such as {first}; a mask has 0 and one other value")
    return marked


def center_crop(pixels: np.ndarray, size: int | None) -> np.ndarray:
    """The central square of an image or of masks (… h w), or all of them for `size` None."""
    if size is None:
        return pixels
    h, w = pixels.shape[-2:]
    if size > min(h, w):
        raise MueError(f"is {h}×{w} pixels, too small for crops of {size}×{size}")
    top, left = (h - size) // 2, (w - size) // 2
    return pixels[..., top : top + size, left : left + size]
