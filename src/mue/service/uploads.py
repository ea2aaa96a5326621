"""From the bytes of an upload to the input of a network, without a file on disk."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    """The slice of an uploaded image or volume that is asked for, with the channels of a model.

    The volume itself is let go: many requests may wait.
    """

    raw: RawImage  # of one slice, where it was in the volume
    index: int
    slices: int

    @property
    def pixels(self) -> Shaped[np.ndarray, "c h w"]:
        """The slice, in the values of its file."""
        return self.raw.pixels[:, 0]


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
    return Upload(_slice(raw, at), at, count)


def _slice(raw: RawImage, index: int) -> RawImage:
    """A slice as a volume of its own, where it was in the volume."""
    geometry = raw.geometry
    if geometry is not None:
        affine, shape = np.array(geometry.affine), list(geometry.shape)
        affine[:3, 3] += affine[:3, geometry.axis] * index
        shape[geometry.axis] = 1
        geometry = replace(geometry, affine=affine, shape=(shape[0], shape[1], shape[2]))
    return replace(raw, pixels=np.array(raw.pixels[:, index : index + 1]), geometry=geometry)


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
    return network_input(pixels[:, None], config)
