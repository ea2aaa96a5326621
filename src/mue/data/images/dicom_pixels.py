"""The pixels of DICOM, compressed ones too, in the units of the scan."""

import struct

import numpy as np
from jaxtyping import Shaped
from pydicom import Dataset, dcmread
from pydicom.encaps import generate_frames
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_color_lut, apply_modality_lut
from pydicom.pixels.utils import pixel_array
from pydicom.uid import (
    JPEG2000,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEGLSNearLossless,
    RLELossless,
)

from mue.data.images.dicom_frames import frame_count, functional_group
from mue.data.images.image import ImageFile, open_bounded
from mue.data.images.isolated import decode_apart
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


def read_pixels(file: ImageFile) -> Shaped[np.ndarray, "c k j i"]:
    """The frames of a file, in the units that its rescaling gives, whole numbers where it can."""
    with open_bounded(file) as opened:
        data = dcmread(opened)
    syntax = data.file_meta.TransferSyntaxUID
    if not (decoder := get_decoder(syntax)).is_available:
        missing = "; ".join(decoder.missing_dependencies)
        raise MueError(f"is compressed as {syntax.name}, which needs a package: {missing}")
    values = decode_pixels(data)
    colour = int(data.get("SamplesPerPixel", 1)) > 1
    if has_palette(data):
        values, colour = apply_color_lut(values, data), True
    elif not colour:
        white_first = data.get("PhotometricInterpretation") == "MONOCHROME1"
        if white_first and values.dtype.kind in "iu":
            values = _inverted(values, data)
        values = _rescaled(values, data)
    values = values if colour else values[..., None]
    return values.reshape(-1, *values.shape[-3:]).transpose(3, 0, 1, 2)


def has_palette(data: Dataset) -> bool:
    """Whether values are indices of colours."""
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
