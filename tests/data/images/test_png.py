import io
import itertools
import zlib

import numpy as np
import pytest
from PIL import Image

from mue.data.images.png import SIGNATURE, decode_png
from mue.errors import MueError

RANDOM = np.random.default_rng(0)


def png_bytes(
    w: int, h: int, depth: int, colour: int, rows: bytes, *, interlaced: int = 0
) -> bytes:
    """A PNG of rows that are filtered already, each with its filter's number before it."""
    header = np.array([w, h], ">u4").tobytes() + bytes([depth, colour, 0, 0, interlaced])
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    parts = [
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
        for kind, data in chunks
    ]
    return SIGNATURE + b"".join(parts)


def filtered(pixels: np.ndarray, kinds: list[int]) -> bytes:
    """Rows (h, bytes of a pixel × w) by the filters of the PNG specification, one a row."""
    h, w, step = pixels.shape
    before, out = np.zeros((w, step), int), b""
    for y in range(h):
        kind, row = kinds[y % len(kinds)], pixels[y].astype(int)
        a = np.vstack([np.zeros((1, step), int), row[:-1]])
        c = np.vstack([np.zeros((1, step), int), before[:-1]])
        p = a + before - c
        near = np.abs(np.stack([p - a, p - before, p - c])).argmin(axis=0)
        paeth = np.choose(near, [a, before, c])
        guess = [0 * row, a, before, (a + before) // 2, paeth][kind]
        out += bytes([kind]) + ((row - guess) % 256).astype(np.uint8).tobytes()
        before = row
    return out


def saved(image: Image.Image, **options) -> bytes:
    image.save(buffer := io.BytesIO(), "PNG", **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kinds", [[k] for k in range(5)] + [[2, 1, 0, 2, 2, 4, 3], [2, 2, 1, 2]])
@pytest.mark.parametrize(
    ("depth", "colour", "step"),
    [(8, 0, 1), (8, 4, 2), (16, 0, 2), (16, 4, 4), (8, 2, 3), (16, 2, 6), (16, 6, 8)],
)
def test_every_filter_is_undone_to_the_bit(kinds, depth, colour, step):
    raw = RANDOM.integers(0, 256, (9, 5, step), dtype=np.uint8)
    data = png_bytes(5, 9, depth, colour, filtered(raw, kinds))
    wide = raw if depth == 8 else raw.view(">u2")
    assert np.array_equal(decode_png(data).pixels, wide)


def test_an_interlaced_picture_is_read():
    raw = RANDOM.integers(0, 256, (9, 5, 6), dtype=np.uint8)
    rows = b""
    for (y, x), (down, right) in zip(
        [(0, 0), (0, 4), (4, 0), (0, 2), (2, 0), (0, 1), (1, 0)],
        [(8, 8), (8, 8), (8, 4), (4, 4), (4, 2), (2, 2), (2, 1)],
        strict=True,
    ):
        if (part := raw[y::down, x::right]).size:
            rows += filtered(part, [0, 1])
    data = png_bytes(5, 9, 16, 2, rows, interlaced=1)
    assert np.array_equal(decode_png(data).pixels, raw.view(">u2"))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_few_bits_keep_their_values_in_a_mask_and_are_scaled_in_an_image(depth):
    values = RANDOM.integers(0, 2**depth, (4, 8), dtype=np.uint8)
    values[0, 0] = 2**depth - 1
    bits = np.unpackbits(values[..., None], axis=2)[..., 8 - depth :].reshape(4, -1)
    rows = np.hstack([np.zeros((4, 1), np.uint8), np.packbits(bits, axis=1)]).tobytes()
    found = decode_png(png_bytes(8, 4, depth, 0, rows))
    assert np.array_equal(found.pixels[..., 0], values)
    assert np.array_equal(found.mask()[0], values)
    assert np.array_equal(found.image()[0], values * (255 // (2**depth - 1)))


def test_a_flipped_bit_or_a_missing_end_is_noticed_wherever_it_is():
    image = Image.fromarray(RANDOM.integers(0, 2, (16, 16), dtype=np.uint8) * 255)
    data = saved(image)
    for i, bit in itertools.product(range(8, len(data)), (0, 5)):
        broken = bytearray(data)
        broken[i] ^= 1 << bit
        with pytest.raises(MueError, match=r"PNG|pixels"):
            decode_png(bytes(broken))
    for end in range(8, len(data)):
        with pytest.raises(MueError, match="truncated PNG"):
            decode_png(data[:end])


def test_a_size_is_refused_before_memory_is_taken():
    with pytest.raises(MueError, match=r"is 100000 x 100000 pixels; 1 to 67108864 are read"):
        decode_png(png_bytes(100_000, 100_000, 8, 0, b""))
    with pytest.raises(MueError, match="is damaged as PNG: its pixels are incomplete"):
        decode_png(png_bytes(2, 10, 8, 0, b"abc"))


def test_an_animation_is_refused():
    frames = [Image.new("L", (4, 4), v) for v in (0, 255)]
    with pytest.raises(MueError, match="is an animation; save its frames"):
        decode_png(saved(frames[0], save_all=True, append_images=frames[1:]))
