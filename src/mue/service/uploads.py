"""From the bytes of an upload to the input of a network, without a file on disk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from mue.config.schema import NormalizeConfig
from mue.data.images.image import FileInMemory, Limits, RawImage, limited
from mue.data.images.reader import decode_file
from mue.errors import MueError
from mue.inference.files import network_input, with_channels
from mue.service.settings import Settings


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """An uploaded image or volume with the channels of a model, and the slice that is asked for."""

    raw: RawImage
    index: int

    @property
    def pixels(self) -> Shaped[np.ndarray, "c h w"]:
        """The slice, in the values of its file."""
        return self.raw.pixels[:, self.index]


def read_upload(
    name: str, content: bytes, index: int | None, channels: int, settings: Settings
) -> Upload:
    """An image by its content; of a volume the slice `index`, or the one in the middle."""
    label = "".join(c for c in name.replace("\\", "/").rpartition("/")[2] if c.isprintable())[-80:]
    if not content:
        raise MueError("`file` must be an image file, got one without content")
    with limited(Limits(settings.pixels, settings.volume)):
        raw = decode_file(FileInMemory(label or "the upload", content))
    raw = with_channels(raw, channels, label)
    count = raw.pixels.shape[1]
    if count > settings.slices:
        raise MueError(f"{label} has {count} slices; {settings.slices} are read; divide it")
    at = count // 2 if index is None else index
    if not 0 <= at < count:
        raise MueError(f"`slice` must be in 0..{count - 1} (the slices of {label}), got {at}")
    return Upload(raw, at)


def as_input(
    pixels: Shaped[np.ndarray, "c h w"], config: NormalizeConfig
) -> Float[Tensor, "1 c h w"]:
    """A slice as a network takes it.

    A model whose images are divided by the maximum of their type cannot know that of a scan, with
    values below 0 or beyond 1 as real numbers: such a slice is scaled by its own range, as the
    crops of LIDC-IDRI are.
    """
    if config.kind == "unit" and pixels.dtype.kind in "if":
        low, high = float(pixels.min()), float(pixels.max())
        if pixels.dtype.kind == "i" or low < 0 or high > 1:
            scaled = (pixels.astype(np.float64) - low) / max(high - low, 1e-8)
            return torch.from_numpy(scaled.astype(np.float32))[None]
    return network_input(np.array(pixels[:, None]), config)
