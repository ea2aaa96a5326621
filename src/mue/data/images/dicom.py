"""DICOM: a series of slices, one slice, or several frames in one file, compressed ones too."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped
from pydicom import Dataset, dcmread
from pydicom.encaps import generate_frames
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_color_lut, apply_modality_lut
from pydicom.pixels.utils import pixel_array
from pydicom.uid import (
    JPEG2000,
    DeflatedExplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEGLSNearLossless,
    RLELossless,
    SegmentationStorage,
)

from mue.data.images.image import (
    MAX_BYTES,
    ImageFile,
    SeriesInMemory,
    check_size,
    max_bytes,
    open_bounded,
)
from mue.data.images.isolated import decode_apart
from mue.data.images.walk import dicom_files
from mue.errors import MueError

_DECODERS = {
    RLELossless: "pydicom",
    JPEGBaseline8Bit: "pillow",
    JPEGExtended12Bit: "pillow",
    JPEGLSLossless: "pyjpegls",
    JPEGLSNearLossless: "pyjpegls",
    JPEG2000Lossless: "pylibjpeg",
    JPEG2000: "pylibjpeg",
    JPEGLossless: "gdcm",
    JPEGLosslessSV1: "gdcm",
}
_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of a JPEG before its size
_INFLATED = 1032  # the most bytes that one deflated byte can become
_MAX_FRAMES = 1 << 16  # of a series
_TOLERANCE = 0.1  # of the distance of two slices


@dataclass(frozen=True, slots=True, eq=False)
class DicomImage:
    """An image or a series as it is read.

    Attributes:
        voxels: Values in the units of the scan.
        affine: Of the voxels, where the slices have positions.
        files: In the order of the slices.
        bits: Stored bits of a value, where its type has more.
    """

    voxels: Shaped[np.ndarray, "c k j i"]
    affine: Float[np.ndarray, "4 4"] | None
    files: tuple[ImageFile, ...]
    bits: int | None


@dataclass(frozen=True, slots=True)
class _Frame:
    """A slice of a series: its place in a file and in space."""

    file: ImageFile
    number: int  # in its file
    position: Float[np.ndarray, "3"] | None  # of the first pixel, x to the left and y to the back
    orientation: tuple[float, ...]  # directions of a row and of a column
    spacing: tuple[float, ...]  # mm between rows, between columns
    thickness: float


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


def read_dicom(path: ImageFile | SeriesInMemory) -> DicomImage:
    """The image of a file or a series.

    A folder holds one series. The slices come in the order of their positions; one that is missing
    between others is an error. An error is a clause that follows on the path.
    """
    files = _files(path)
    if not files:
        raise MueError("holds no DICOM files")
    if (total := sum(file.stat().st_size for file in files)) > MAX_BYTES:
        raise MueError(f"has {total} bytes; at most {MAX_BYTES} are read")
    heads = [_header(file) for file in files]
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
        frame for file, head in zip(files, heads, strict=True) for frame in _frames(file, head)
    ]
    check_size((channels, len(frames), rows, columns), np.float64)
    affine = None
    if _have_positions(frames):
        frames, affine = _in_space(frames)
    elif len(files) > 1:
        raise MueError("has slices without a position, which cannot be ordered; save it as NIfTI")
    decoded: dict[ImageFile, np.ndarray] = {}
    slices: list[np.ndarray] = []
    for frame in frames:
        if frame.file not in decoded:
            decoded = {frame.file: _pixels(frame.file)}  # c k j i
        slices.append(decoded[frame.file][:, frame.number])
    voxels, in_order = np.stack(slices, axis=1), tuple(dict.fromkeys(f.file for f in frames))
    return DicomImage(voxels, affine, in_order, _stored_bits(heads, voxels.dtype))


def _stored_bits(heads: Sequence[Dataset], dtype: np.dtype) -> int | None:
    """Bits of 16 that are in use, unless values were rescaled or looked up."""
    if dtype != np.uint16 or any(map(_has_palette, heads)):
        return None
    bits = max(int(head.get("BitsStored", 16)) for head in heads)
    return bits if 0 < bits < 16 else None


def frame_order(head: Dataset) -> list[int]:
    """Numbers in their file of the frames of an image, in the order of their positions."""
    frames = list(_frames(Path(), head))
    if _have_positions(frames):
        frames, _ = _in_space(frames)
    return [frame.number for frame in frames]


def _have_positions(frames: Sequence[_Frame]) -> bool:
    return all(f.position is not None and len(f.orientation) == 6 and f.spacing for f in frames)


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


def frame_count(head: Dataset) -> int:
    """How many frames an image has."""
    return int(head.get("NumberOfFrames") or 1)


def _frames(file: ImageFile, head: Dataset) -> Iterator[_Frame]:
    """The frames of a file."""
    for i in range(frame_count(head)):
        position = functional_group(head, i, "PlanePositionSequence").get("ImagePositionPatient")
        plane = functional_group(head, i, "PlaneOrientationSequence")
        measures = functional_group(head, i, "PixelMeasuresSequence")
        yield _Frame(
            file,
            i,
            np.array(position, dtype=np.float64) if position else None,
            tuple(float(v) for v in plane.get("ImageOrientationPatient") or ()),
            tuple(float(v) for v in measures.get("PixelSpacing") or ()),
            float(measures.get("SliceThickness") or 1),
        )


def functional_group(head: Dataset, frame: int, name: str) -> Dataset:
    """What an enhanced image says of a frame, or of all; of other images the header itself."""
    shared = (head.get("SharedFunctionalGroupsSequence") or [Dataset()])[0]
    each = head.get("PerFrameFunctionalGroupsSequence") or []
    own = each[frame] if frame < len(each) else Dataset()
    return (own.get(name) or shared.get(name) or [head])[0]


def _in_space(frames: Sequence[_Frame]) -> tuple[list[_Frame], Float[np.ndarray, "4 4"]]:
    """Frames in the order of their positions along the normal, and the affine of the volume."""
    first = frames[0]
    for f in frames:
        if not np.allclose(f.orientation, first.orientation, atol=1e-3) or not np.allclose(
            f.spacing, first.spacing, rtol=1e-3
        ):
            raise MueError(f"has slices of different directions or spacings, one is {f.file.name}")
    row, column = np.array(first.orientation[:3]), np.array(first.orientation[3:])
    normal = np.cross(row, column)
    frames = sorted(frames, key=lambda f: float(normal @ _position(f)))
    at = np.array([normal @ _position(f) for f in frames])
    steps, through = np.diff(at), normal * first.thickness
    if len(steps):
        step = float(np.median(steps))
        wrong = np.flatnonzero((abs(steps - step) > _TOLERANCE * abs(step)) | (steps <= 1e-4))
        if len(wrong):
            i = wrong[0]
            what = "two slices" if steps[i] <= 1e-4 else "a slice missing"
            raise MueError(
                f"has {what} between {frames[i].file.name} ({at[i]:g} mm) and "
                f"{frames[i + 1].file.name} ({at[i + 1]:g} mm), where its step is {step:g} mm"
            )
        through = (_position(frames[-1]) - _position(frames[0])) / len(steps)
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = row * first.spacing[1], column * first.spacing[0]
    affine[:3, 2], affine[:3, 3] = through, _position(frames[0])
    affine[:2] *= -1  # x to the right, y to the front
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-9:
        raise MueError("has positions or spacings that describe no volume")
    return frames, affine


def _position(frame: _Frame) -> Float[np.ndarray, "3"]:
    assert frame.position is not None
    return frame.position


def decode_pixels(data: Dataset) -> np.ndarray:
    """The stored values of a data set. An error is a clause that follows on the path.

    Each compression has its decoder: of two that could, one may end the process on damaged bytes.
    The plugin for RLE does, and GDCM; what no other decodes, it decodes in a process of its own,
    after the sizes of the frames were checked.
    """
    syntax = data.file_meta.TransferSyntaxUID
    if syntax == JPEGExtended12Bit and int(data.get("BitsStored", 8)) > 8:
        raise MueError(f"is compressed as {syntax.name} with 12 bits; decompress it first")
    decoder = _DECODERS.get(syntax, "")
    if decoder == "gdcm":
        _check_frames(data)
        return decode_apart(data)
    return pixel_array(data, decoding_plugin=decoder)


def _check_frames(data: Dataset) -> None:
    """Refuse frames, compressed as JPEG, of another size or depth than the header says."""
    said = (int(data.Rows), int(data.Columns), int(data.SamplesPerPixel), int(data.BitsAllocated))
    for frame in generate_frames(data.PixelData, number_of_frames=frame_count(data)):
        h, w, channels, bits = _jpeg_size(frame)
        if (h, w, channels, 8 if bits <= 8 else 16) != said:
            has = f"{h} x {w} x {channels} of {bits} bits"
            raise MueError(
                f"is damaged as DICOM: a frame has {has}, and the header says "
                "{} x {} x {} in {}".format(*said)
            )


def _jpeg_size(frame: bytes) -> tuple[int, int, int, int]:
    """Height, width, channels and bits of a value."""
    at = 2  # after the marker of the start
    while at + 10 <= len(frame) and frame[at] == 0xFF:
        if frame[at + 1] in _FRAME:
            bits, h, w, channels = struct.unpack_from(">BHHB", frame, at + 4)
            return h, w, channels, bits
        at += 1 if frame[at + 1] == 0xFF else 2 + int.from_bytes(frame[at + 2 : at + 4], "big")
    raise MueError("is damaged as DICOM: a frame is not a JPEG")


def _pixels(file: ImageFile) -> Shaped[np.ndarray, "c k j i"]:
    """The frames of a file, in the units that its rescaling gives, whole numbers where it can."""
    with open_bounded(file) as opened:
        data = dcmread(opened)
    syntax = data.file_meta.TransferSyntaxUID
    if not (decoder := get_decoder(syntax)).is_available:
        missing = "; ".join(decoder.missing_dependencies)
        raise MueError(f"is compressed as {syntax.name}, which needs a package: {missing}")
    values = decode_pixels(data)
    colour = int(data.get("SamplesPerPixel", 1)) > 1
    if _has_palette(data):
        values, colour = apply_color_lut(values, data), True
    elif not colour:
        white_first = data.get("PhotometricInterpretation") == "MONOCHROME1"
        if white_first and values.dtype.kind in "iu":
            values = _inverted(values, data)
        values = _rescaled(values, data)
    values = values if colour else values[..., None]
    return values.reshape(-1, *values.shape[-3:]).transpose(3, 0, 1, 2)


def _has_palette(data: Dataset) -> bool:
    return data.get("PhotometricInterpretation") == "PALETTE COLOR"


def _rescaled(values: np.ndarray, data: Dataset) -> np.ndarray:
    """Stored values in the units of the scan; the frames of an enhanced image may differ in it."""
    count, name = frame_count(data), "PixelValueTransformationSequence"
    frames = values.reshape(count, *values.shape[-2:])
    by = [functional_group(data, i, name) for i in range(count)]
    with np.errstate(all="ignore"):
        if all(group is by[0] for group in by):
            scaled = apply_modality_lut(frames, by[0])
        else:
            scaled = np.stack([apply_modality_lut(f, g) for f, g in zip(frames, by, strict=True)])
    if scaled.dtype != values.dtype and np.isfinite(scaled).all():
        low, high = scaled.min(), scaled.max()
        if (scaled == np.trunc(scaled)).all() and low >= -(1 << 31) and high < 1 << 31:
            small = low >= -(1 << 15) and high < 1 << 15
            scaled = scaled.astype(np.int16 if small else np.int32)
    return scaled


def _inverted(values: np.ndarray, data: Dataset) -> np.ndarray:
    """Stored values from white to black as values from black to white, in the same range."""
    if values.dtype.kind == "i":
        return ~values  # -1 - v
    top = (1 << int(data.BitsStored)) - 1
    return top - np.minimum(values, top)
