"""PNG files as arrays."""

from __future__ import annotations

import io
import struct
import zlib
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from mue.errors import MueError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_END = b"IEND\xaeB`\x82"
_SIDE = 4096


def picture(data: bytes) -> UInt8[np.ndarray, "h w"]:
    """The grey values of a PNG.

    Raises:
        ValueError: With a clause that says what is wrong, to follow on the file's name.
    """
    if not data.startswith(_SIGNATURE) or len(data) < 24:
        raise MueError("is not a PNG")
    w, h = struct.unpack(">II", data[16:24])  # before anything of that size is made
    if not (0 < w <= _SIDE and 0 < h <= _SIDE):
        raise MueError(f"is {h}×{w} pixels; at most {_SIDE}×{_SIDE} are read")
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
def drawing(data: bytes) -> Bool[np.ndarray, "h w"]:
    """The mask in a PNG, of 0 and 255 or of 0 and 1. Read-only: empty masks are one array."""
    mask = threshold(picture(data))
    mask.setflags(write=False)
    return mask


def threshold(grey: np.ndarray) -> np.ndarray:
    """What is drawn: above one half of 1, or of 255 where any value is above 1."""
    return grey > (127 if grey.size and grey.max() > 1 else 0.5)
