"""TIFF: 8 and 16 bits and floats, any number of channels, pages as slices."""

import lzma
import struct
import zlib
from typing import Any
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Shaped
from PIL import Image, ImageSequence
from tifffile import COMPRESSION, PHOTOMETRIC, TiffFile

from mue.data.images.image import Axis, ImageFile, RawImage, check_size, open_bounded, volume_image
from mue.data.images.picture import scale_to_bytes, turn
from mue.errors import MueError

_OPACITY = (1, 2)  # kinds of an extra sample
_PLAIN = tuple(PHOTOMETRIC[n] for n in ("MINISWHITE", "MINISBLACK", "RGB", "PALETTE", "MASK"))
_MAX_PAGES = 1 << 14
_DEFLATE, _LZMA, _PACKBITS = (8, 32946, 50013), 34925, 32773  # compressions
_LZMA_MEMORY = 1 << 28
_OME_BYTES = 1 << 24
_OME_COUNTS = ("SizeC", "SizeT", "SizeZ", "PlaneCount", "NumPlanes", "IFD")
_ALONE: Any = {"is_mmstack": False, "is_ndtiff": False}  # forms that continue in other files


def read(file: ImageFile, *, axis: Axis, mask: bool) -> RawImage:
    """The pages of a file as slices."""
    return volume_image(read_tiff(file, mask=mask), None, (file,), axis, mask)


def read_tiff(path: ImageFile, *, mask: bool) -> Shaped[np.ndarray, "c k h w"]:
    """The pages of a TIFF as slices; an error is a clause that follows on the file's name."""
    with open_bounded(path) as opened, TiffFile(opened, **_ALONE) as file:
        _check_pages(file)
        _check_ome(file, path.name)
        series, page = file.series[0], file.pages.first
        if len(file.series) > 1:
            sizes = {" x ".join(map(str, s.shape)) for s in file.series}
            raise MueError(f"holds several images ({', '.join(sorted(sizes))}); save one of them")
        axes, shape = series.axes, series.shape
        others = [n for a, n in zip(axes, shape, strict=True) if a not in "SCYX" and n > 1]
        if len(others) > 1 or "Y" not in axes or "X" not in axes:
            raise MueError(f"has the axes {axes}; slices, rows, columns and channels are read")
        slices = others[0] if others else 1
        h, w = shape[axes.index("Y")], shape[axes.index("X")]
        channels = int(np.prod([n for a, n in zip(axes, shape, strict=True) if a in "SC"]))
        check_size((channels, slices, h, w), series.dtype or np.uint8)
        if missing := sum(each is None for each in series.pages):
            raise MueError(f"lacks {missing} of the {len(series.pages)} pages that it describes")
        for each in series.pages:
            _check_segments(file, each)
        try:
            pixels = series.asarray()
        except ValueError as error:
            if "imagecodecs" not in str(error):
                raise
            return _by_pillow(path, mask, error)
        inner = [axes.index(a) for a in "YX"]
        outer = [i for i, a in enumerate(axes) if a in "CS"]
        rest = [i for i in range(len(axes)) if i not in inner + outer]
        pixels = pixels.transpose(*outer, *rest, *inner).reshape(channels, slices, h, w)
        return turn(_samples(pixels, page, mask), int(page.tags.valueof(274, default=1)))


def _check_pages(file: TiffFile) -> None:
    """Refuse pages that follow on one another in a circle: tifffile would go round for minutes."""
    tiff, handle, seen = file.tiff, file.filehandle, set[int]()
    at = file.pages.first.offset
    while at:
        if at in seen or len(seen) == _MAX_PAGES:
            raise MueError(f"has pages in a circle, or more than {_MAX_PAGES}; save it again")
        seen.add(at)
        handle.seek(at)
        (tags,) = struct.unpack(tiff.tagnoformat, handle.read(tiff.tagnosize))
        handle.seek(at + tiff.tagnosize + tags * tiff.tagsize)
        after = handle.read(tiff.offsetsize)
        at = struct.unpack(tiff.offsetformat, after)[0] if len(after) == tiff.offsetsize else 0
        at = at if at < handle.size else 0


def _check_ome(file: TiffFile, name: str) -> None:
    """Refuse an OME-TIFF that continues in other files: tifffile would open whatever it names.

    Its numbers are checked, too: tifffile takes memory for each page that they claim.
    """
    if not file.is_ome or (text := file.ome_metadata) is None:
        return
    if len(text) > _OME_BYTES:
        raise MueError(f"has {len(text)} characters of OME-XML; at most {_OME_BYTES} are read")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314  tifffile parses it, too
    except ElementTree.ParseError:  # it is read by its pages alone
        return
    own = root.get("UUID")
    for element in root.iter():
        other, foreign = element.get("FileName"), own is None or element.text != own
        if element.tag.endswith("UUID") and foreign and other != name:
            raise MueError(
                f"is an OME-TIFF that continues in {other!r}; save all of it in one file"
            )
        if "ModuloAlong" in element.tag:
            raise MueError("has divided axes (ModuloAlong of OME); save it with plain ones")
        for count in _OME_COUNTS:
            if not 0 <= (n := int(element.get(count, 0))) <= _MAX_PAGES:
                raise MueError(f"claims {count} {n} in its OME-XML; at most {_MAX_PAGES} are read")


def _check_segments(file: TiffFile, page: Any) -> None:
    """Refuse strips and tiles that decompress to more than they claim: tifffile takes any size."""
    if page.compression not in (*_DEFLATE, _LZMA, _PACKBITS):
        return
    claimed = int(np.prod(page.chunks)) * page.dtype.itemsize
    for offset, size in zip(page.dataoffsets, page.databytecounts, strict=True):
        file.filehandle.seek(offset)
        data = file.filehandle.read(size)
        if page.compression == _PACKBITS:
            length = _unpacked_length(data)
        elif page.compression == _LZMA:
            unpacker = lzma.LZMADecompressor(memlimit=_LZMA_MEMORY)
            length = len(unpacker.decompress(data, claimed + 1))
        else:
            length = len(zlib.decompressobj().decompress(data, claimed + 1))
        if length > claimed:
            raise MueError(f"holds more than the {claimed} bytes that a part of it claims")


def _unpacked_length(data: bytes) -> int:
    """Bytes that PackBits makes of these: runs of one byte, and bytes that are copied."""
    length = at = 0
    while at < len(data):
        n = data[at]
        length += 257 - n if n > 128 else n + 1 if n < 128 else 0
        at += 2 if n > 128 else n + 2 if n < 128 else 1
    return length


def _samples(
    pixels: Shaped[np.ndarray, "c k h w"], page: Any, mask: bool
) -> Shaped[np.ndarray, "c k h w"]:
    """Without a palette, an inverted scale or an opacity that is full everywhere."""
    if page.photometric not in _PLAIN and page.compression != COMPRESSION.JPEG:  # it gives RGB
        kind = getattr(page.photometric, "name", page.photometric)
        raise MueError(f"has colours of the kind {kind}; save it in grey or RGB")
    if page.photometric == PHOTOMETRIC.MINISWHITE and pixels.dtype.kind in "bu":
        top = 1 if pixels.dtype == bool else (1 << page.bitspersample) - 1
        pixels = (top - pixels.astype(np.uint8 if top == 1 else pixels.dtype)).astype(pixels.dtype)
    if page.photometric == PHOTOMETRIC.PALETTE and not mask:
        return np.concatenate(page.colormap[:, pixels], axis=0)
    if page.bitspersample < 8 and not mask:
        return scale_to_bytes(pixels, page.bitspersample)
    opacity = len(pixels) > 1 and page.extrasamples[-1:] and page.extrasamples[-1] in _OPACITY
    if opacity and (mask or (pixels[-1] == _full(pixels.dtype)).all()):
        return pixels[:-1]
    return pixels


def _full(dtype: np.dtype) -> float:
    """The value of full opacity."""
    return np.iinfo(dtype).max if dtype.kind == "u" else 1.0


def _by_pillow(path: ImageFile, mask: bool, why: ValueError) -> Shaped[np.ndarray, "c k h w"]:
    """Compressions that tifffile leaves to another package; pages of one size."""
    pages: list[np.ndarray] = []
    with open_bounded(path) as opened, Image.open(opened, formats=["TIFF"]) as file:
        for frame in ImageSequence.Iterator(file):
            bits = frame.tag_v2.get(258, (1,))  # pyright: ignore[reportAttributeAccessIssue]
            lossless = ("1", "L", "I;16", "I", "F", "RGB", "RGBA")
            if frame.mode not in lossless or (frame.mode in ("RGB", "RGBA") and max(bits) > 8):
                raise MueError(
                    f"is compressed in a way that needs `pip install imagecodecs`: {why}"
                )
            page = np.asarray(frame)
            page = scale_to_bytes(page, 1) if page.dtype == bool and not mask else page
            pages.append(page.reshape(*page.shape[:2], -1).transpose(2, 0, 1))
    return np.stack(pages, axis=1)
