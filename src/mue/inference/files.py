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
            if file.width * file.height > LARGEST_IMAGE:
                raise MueError(
                    f"{path} must have at most {LARGEST_IMAGE} pixels, "
                    f"got {file.width} x {file.height}; crop or scale it"
                )
            image: Image.Image = file
            if file.mode.startswith("I;16"):  # Pillow's conversion of 16 bits cuts off at 255
                image = Image.fromarray((np.asarray(file) / 257).round().astype(np.uint8))
            pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    except MueError:
        raise
    except FileNotFoundError:
        raise MueError(f"there is no image file {path}") from None
    except Exception as error:  # for bytes that are no picture, Pillow raises any
        raise MueError(
            f"{path} must be an image file that can be read, and it is not: {error}"
        ) from None
    x = torch.tensor(pixels, dtype=torch.float32) / 255
    return x[None] if channels == 1 else x.permute(2, 0, 1)
