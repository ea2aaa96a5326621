"""PNG with every checksum verified and every bit kept.

Pillow verifies no checksum of the pixels, keeps 8 of the 16 bits of a colour, and scales 2 and 4
bits to 8. So chunks are read here. Pixels are too, where rows are stored as they are or as
differences to the left or to the row above, which numpy undoes faster than Pillow; other filters
and interlacing are left to Pillow.
"""

import io
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image

from mue.data.images.image import check_size
from mue.data.images.picture import Picture, orientation_of
from mue.errors import MueError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of each colour type
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE, _ALPHA = 3, (4, 6)


def decode_png(data: bytes) -> Picture:
    """The pixels of a PNG; an error is a clause that follows on the file's name."""
    header, pixels, other = (), [], {}
    for kind, content in _chunks(data):
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
    decoded = None
    if depth >= 8 and not interlaced:
        decoded = _unfilter(b"".join(pixels), h, w * channels * depth // 8, channels * depth // 8)
    if decoded is None:
        decoded = _by_pillow(data, depth, colour)
    elif depth == 16:
        decoded = decoded.view(">u2").astype(np.uint16)
    palette = np.frombuffer(other.get(b"PLTE", b""), np.uint8)
    return Picture(
        decoded.reshape(h, w, channels),
        palette=palette[: len(palette) // 3 * 3].reshape(-1, 3) if colour == _PALETTE else None,
        alpha=colour in _ALPHA,
        keyed=b"tRNS" in other,
        orientation=orientation_of(other.get(b"eXIf", b"")),
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


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
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


def _unfilter(data: bytes, h: int, row: int, step: int) -> UInt8[np.ndarray, "h row"] | None:
    """The bytes of each row, or None where a filter is neither none, left nor up.

    Within a run of rows that are differences to the row above, each is the sum of the rows of the
    run up to it, modulo 256: the running sum over all rows, less its value before the run.
    """
    size = h * (row + 1)
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(data, size)
    except zlib.error as error:
        raise MueError(f"is damaged as PNG ({error})") from None
    if len(raw) != size:
        raise MueError(f"is damaged as PNG: it holds {len(raw)} of {size} bytes of pixels")
    rows = np.frombuffer(raw, np.uint8).reshape(h, row + 1)
    kind, values = rows[:, 0], rows[:, 1:]
    if kind.max() > 2:
        return None
    left = kind == 1
    if left.any():
        values = values.copy()
        summed = values[left].reshape(-1, row // step, step).cumsum(axis=1, dtype=np.uint8)
        values[left] = summed.reshape(-1, row)
    above = kind == 2
    above[0] = False  # above the first row are zeros
    if above.any():
        total = values.cumsum(axis=0, dtype=np.uint8)
        start = np.maximum.accumulate(np.where(above, 0, np.arange(h)))  # of the run of each row
        return total - (total - values)[start]
    return np.ascontiguousarray(values)


def _by_pillow(data: bytes, depth: int, colour: int) -> Shaped[np.ndarray, "h w *c"]:
    """The samples of any PNG that Pillow reads, with all of their bits."""

    def load(rawmode: str = "") -> np.ndarray:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as file:
            if rawmode:
                file.tile = [tile._replace(args=rawmode) for tile in file.tile]
            return np.asarray(file)

    if depth == 16 and colour in (2, 6):  # Pillow keeps one byte of two; ask for each of them
        mode = "RGB" if colour == 2 else "RGBA"
        high, low = (load(f"{mode};16{order}").astype(np.uint16) for order in "BL")
        return high << 8 | low
    if depth == 16 and colour == 4:
        raise MueError("has 16 bits of grey with transparency; save it without transparency")
    values = load()
    return values // (255 // (2**depth - 1)) if colour == 0 and 1 < depth < 8 else values
