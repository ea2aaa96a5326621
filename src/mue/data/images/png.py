"""PNG with every checksum verified and every bit kept.

Pillow verifies no checksum of the pixels, keeps 8 of the 16 bits of a colour, and scales 2 and 4
bits to 8. So chunks are read here, and Pillow's decoder is told which bytes to keep.
"""

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from jaxtyping import Shaped
from PIL import Image

from mue.data.images.formats import PNG
from mue.data.images.image import Axis, ImageFile, RawImage, check_size, open_bounded
from mue.data.images.picture import Picture, orientation_of, picture_image
from mue.errors import MueError

SIGNATURE = PNG.beginnings[0]
_MODES = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of each colour type
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE, _ALPHA = 3, (4, 6)


def read(file: ImageFile, *, axis: Axis, mask: bool) -> RawImage:
    """The picture in a file."""
    del axis
    with open_bounded(file) as opened:
        return picture_image(decode_png(opened.read()), file, mask=mask)


def decode_png(data: bytes) -> Picture:
    """The pixels of a PNG; an error is a clause that follows on the file's name."""
    header, pixels, other = (), [], {}
    for kind, content in read_chunks(data):
        if kind == b"IHDR":
            header = _header(content)
        elif kind == b"IDAT":
            pixels.append(content)
        else:
            other[kind] = content
    if not header:
        raise MueError("is damaged as PNG: it has no header")
    w, h, depth, colour, interlaced = header
    channels = _CHANNELS[colour]
    if int.from_bytes(other.get(b"acTL", b"")[:4], "big") > 1:
        raise MueError("is an animation; save its frames as pictures, each a case of its own")
    decoded = _decode(b"".join(pixels), (w, h), depth, colour, interlaced)
    palette = np.frombuffer(other.get(b"PLTE", b""), np.uint8)
    return Picture(
        decoded.reshape(h, w, channels),
        palette=palette[: len(palette) // 3 * 3].reshape(-1, 3) if colour == _PALETTE else None,
        alpha=colour in _ALPHA,
        keyed=b"tRNS" in other,
        orientation=orientation_of(other.get(b"eXIf", b"")),
        bits=depth,
    )


def _header(content: bytes) -> tuple[int, int, int, int, int]:
    """Width, height, bits, colour type and interlacing; a size that is not read is refused."""
    if len(content) != 13:
        raise MueError("is damaged as PNG: its header is not of 13 bytes")
    w, h, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", content)
    if depth not in _DEPTHS.get(colour, ()):
        raise MueError(f"is damaged as PNG: it claims {depth} bits of the colour type {colour}")
    check_size((_CHANNELS[colour], h, w), np.uint16 if depth == 16 else np.uint8)
    return w, h, depth, colour, interlaced


def read_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of each chunk up to the last, its checksum verified."""
    at, kind, view = len(SIGNATURE), b"", memoryview(data)
    while kind != b"IEND":
        if at + 12 > len(data):
            raise MueError("is a truncated PNG")
        size, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + size
        if end + 4 > len(data):
            raise MueError("is a truncated PNG")
        if zlib.crc32(view[at + 4 : end]) != struct.unpack_from(">I", data, end)[0]:
            raise MueError(f"is damaged as PNG: the checksum of a chunk is wrong, at byte {at}")
        yield kind, data[at + 8 : end]
        at = end + 4


def _decode(
    data: bytes, size: tuple[int, int], depth: int, colour: int, interlaced: int
) -> Shaped[np.ndarray, "h w *c"]:
    """The samples of all pixels, with all of their bits."""

    def load(mode: str, rawmode: str) -> np.ndarray:
        try:
            return np.asarray(Image.frombytes(mode, size, data, "zip", rawmode, interlaced))
        except ValueError:
            raise MueError("is damaged as PNG: its pixels are incomplete") from None

    mode = _MODES[colour]
    if depth == 16 and colour == 0:
        return load("I;16", "I;16B")
    if depth == 16 and colour == 4:  # as if the two bytes of grey and of opacity were RGBA
        samples = load("RGBA", "RGBA").astype(np.uint16)
        return samples[..., ::2] << 8 | samples[..., 1::2]
    if depth == 16:  # the decoder keeps one byte of two: ask for each of them
        high, low = (load(mode, f"{mode};16{order}").astype(np.uint16) for order in "BL")
        return high << 8 | low
    if depth == 8:
        return load(mode, mode)
    return load("P", f"P;{depth}")
