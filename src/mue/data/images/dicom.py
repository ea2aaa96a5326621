"""DICOM: a series of slices, one slice, or several frames in one file, compressed ones too."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydicom import Dataset, dcmread
from pydicom.uid import DeflatedExplicitVRLittleEndian, SegmentationStorage

from mue.data.images.dicom_frames import frame_count, frames_of, have_positions, in_space
from mue.data.images.dicom_pixels import has_palette, read_pixels
from mue.data.images.image import (
    MAX_BYTES,
    Axis,
    ImageFile,
    RawImage,
    SeriesInMemory,
    check_size,
    max_bytes,
    open_bounded,
    volume_image,
)
from mue.data.images.walk import dicom_files
from mue.errors import MueError

_INFLATED = 1032  # the most bytes that one deflated byte can become
_MAX_FRAMES = 1 << 16  # of a series


def _files(path: ImageFile | SeriesInMemory) -> Sequence[ImageFile]:
    if isinstance(path, SeriesInMemory):
        return path.files
    if not isinstance(path, Path) or not path.is_dir():
        return [path]
    return dicom_files(path)


def read_modality(path: Path) -> str:
    """The modality of a file or series."""
    return str(_header(_files(path)[0]).get("Modality", ""))


def read_series_uid(path: Path) -> str:
    """The series that a file belongs to."""
    return str(_header(path).get("SeriesInstanceUID"))


def read(file: ImageFile | SeriesInMemory, *, axis: Axis, mask: bool) -> RawImage:
    """The image of a file or a series.

    A folder holds one series. The slices come in the order of their positions; one that is missing
    between others is an error. An error is a clause that follows on the path.
    """
    files = _files(file)
    if not files:
        raise MueError("holds no DICOM files")
    if (total := sum(each.stat().st_size for each in files)) > MAX_BYTES:
        raise MueError(f"has {total} bytes; at most {MAX_BYTES} are read")
    heads = [_header(each) for each in files]
    series = {str(head.get("SeriesInstanceUID")) for head in heads}
    if len(series) > 1:
        raise MueError(f"holds {len(series)} series; put each into a folder of its own")
    shapes = {(int(h.Rows), int(h.Columns), int(h.get("SamplesPerPixel", 1))) for h in heads}
    if len(shapes) > 1:
        raise MueError(f"holds slices of different sizes: {sorted(shapes)}; they must be the same")
    (rows, columns, channels), *_ = shapes
    if not 0 < (count := sum(map(frame_count, heads))) <= _MAX_FRAMES:
        raise MueError(f"has {count} frames; 1 to {_MAX_FRAMES} are read; divide it")
    frames = [
        frame for each, head in zip(files, heads, strict=True) for frame in frames_of(each, head)
    ]
    check_size((channels, len(frames), rows, columns), np.float64)
    affine = None
    if have_positions(frames):
        frames, affine = in_space(frames)
    elif len(files) > 1:
        raise MueError("has slices without a position, which cannot be ordered; save it as NIfTI")
    decoded: dict[ImageFile, np.ndarray] = {}
    slices: list[np.ndarray] = []
    for frame in frames:
        if frame.file not in decoded:
            decoded = {frame.file: read_pixels(frame.file)}  # c k j i
        slices.append(decoded[frame.file][:, frame.number])
    voxels, in_order = np.stack(slices, axis=1), tuple(dict.fromkeys(f.file for f in frames))
    found = volume_image(voxels, affine, in_order, axis, mask)
    return replace(found, bits=_stored_bits(heads, voxels.dtype))


def _stored_bits(heads: Sequence[Dataset], dtype: np.dtype) -> int | None:
    """Bits of 16 that are in use, unless values were rescaled or looked up."""
    if dtype != np.uint16 or any(map(has_palette, heads)):
        return None
    bits = max(int(head.get("BitsStored", 16)) for head in heads)
    return bits if 0 < bits < 16 else None


def _header(file: ImageFile) -> Dataset:
    if not file.is_file():  # a FIFO, which would be waited for
        raise MueError(f"holds {file.name}, which is not a file")
    size = file.stat().st_size
    if size * _INFLATED > max_bytes() and _names_deflation(file):
        raise MueError(f"has {size} bytes that are deflated as a whole; save it without")
    with open_bounded(file) as opened:
        head = dcmread(opened, stop_before_pixels=True)
    if head.get("SOPClassUID") == SegmentationStorage:
        raise MueError("is a segmentation in DICOM; save its segments as NIfTI or PNG")
    if "Rows" not in head or "Columns" not in head:
        raise MueError("is DICOM without an image")
    return head


def _names_deflation(file: ImageFile) -> bool:
    """Whether a file may be deflated as a whole: where it says so, other elements may precede."""
    name, before = DeflatedExplicitVRLittleEndian.encode(), b""
    with file.open("rb") as opened:
        while chunk := opened.read(1 << 20):
            if name in before + chunk:
                return True
            before = chunk[-len(name) :]
    return False
