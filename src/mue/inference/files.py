"""Images from files."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mue.errors import MueError

LARGEST_IMAGE = 1 << 26
"""Pixels of the largest image that is read from a file."""


def read_image(path: str | Path, channels: int) -> Tensor:
    """An image file as c h w in 0..1: grey for one channel, colours for three."""
    if channels not in (1, 3):
        raise MueError(
            f"an image file has 1 or 3 channels, and this model takes {channels}: "
            "call `propose` with an array"
        )
    try:
        with Image.open(path) as file:
            size = file.size
            image = _pixels(file, channels) if file.width * file.height <= LARGEST_IMAGE else None
    except FileNotFoundError:
        raise MueError(f"there is no image file {path}") from None
    except (
        OSError,
        SyntaxError,
        ValueError,
        NotImplementedError,
        Image.DecompressionBombError,
    ) as error:  # whatever Pillow makes of bytes that are no picture
        raise MueError(
            f"{path} must be an image file that can be read, and it is not: {error}"
        ) from None
    if image is None:
        raise MueError(
            f"{path} must have at most {LARGEST_IMAGE} pixels, "
            f"got {size[0]} x {size[1]}; crop or scale it"
        )
    pixels = torch.tensor(image, dtype=torch.float32) / 255
    return pixels[None] if channels == 1 else pixels.permute(2, 0, 1)


def _pixels(file: Image.Image, channels: int) -> np.ndarray:
    """The decoded picture as bytes."""
    if file.mode.startswith("I;16"):  # 16 bits of grey: Pillow's conversion would cut off at 255
        file = Image.fromarray((np.asarray(file) / 257).round().astype(np.uint8))
    return np.asarray(file.convert("L" if channels == 1 else "RGB"))
