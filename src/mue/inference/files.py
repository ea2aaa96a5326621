"""Images from files."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mue.data.images.reader import read_image_file
from mue.errors import MueError

_LUMA = torch.tensor([0.299, 0.587, 0.114])  # ITU-R 601


def read_image(path: str | Path, channels: int) -> Tensor:
    """An image file as c h w in 0..1: grey for one channel, colours for three."""
    if channels not in (1, 3):
        raise MueError(
            f"an image file has 1 or 3 channels, and this model takes {channels}: "
            "call `propose` with an array"
        )
    if not Path(path).exists():
        raise MueError(f"there is no image file {path}")
    try:
        pixels = read_image_file(path).pixels
    except MueError as error:
        why = str(error).removeprefix(f"{path} ")
        raise MueError(
            f"{path} must be an image file that can be read, and it is not: it {why}"
        ) from None
    c, d, _, _ = pixels.shape
    if c not in (1, 3) or d > 1 or pixels.dtype.kind == "i":
        raise MueError(
            f"{path} must be one picture of 1 or 3 channels in bytes, 16 bits or floats, "
            f"got {d} of {c} channels in {pixels.dtype}: call `propose` with an array"
        )
    whole = pixels.dtype.kind == "u"
    x = torch.from_numpy(pixels[:, 0].astype(np.float32))
    x = x / np.iinfo(pixels.dtype).max if whole else x
    if c == channels:
        return x
    return torch.einsum("chw,c->hw", x, _LUMA)[None] if c == 3 else x.repeat(3, 1, 1)
