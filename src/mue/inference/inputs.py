"""From the values of an image to what a network takes: shape, channels, normalization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image
from torch import Tensor

from mue.config.schema import Config, NormalizeConfig
from mue.data.images.image import RawImage, plain_values
from mue.data.images.pillow import opened_picture
from mue.data.normalize import normalize
from mue.errors import MueError

AnyImage = Shaped[Tensor | np.ndarray, "..."] | Image.Image | Sequence[Any]
"""What a model can be asked about: an array, an image of Pillow, or nested lists of numbers."""
_LUMA = np.array([0.299, 0.587, 0.114])  # of red, green and blue in grey, as in ITU-R 601


def network_batch(
    image: AnyImage, config: Config, *, axes: int, device: torch.device, normalized: bool = False
) -> Float[Tensor, "b *x"]:
    """An image, or an array of a batch, as a network takes it whose inputs have so many axes.

    It holds the values of image files, unless it is `normalized` already; vectors always are.
    """
    c = config.model.c_in
    if isinstance(image, Image.Image):
        image = _picture_array(image, c)
    x = image.detach() if isinstance(image, Tensor) else torch.from_numpy(_plain_array(image))
    if x.layout != torch.strided or x.is_meta or x.is_quantized:
        raise MueError("`image` must be a dense tensor with values; convert it first")
    if x.is_complex():
        raise MueError(f"`image` must be an array of real numbers, got one of {x.dtype}")
    given = tuple(x.shape)
    if axes == 3 and c == 1 and x.ndim == 2:
        x = x[None]
    if x.ndim == axes:
        x = x[None]
    if x.ndim != axes + 1 or x.shape[1] != c or 0 in x.shape:
        raise MueError(
            f"`image` must be {'c' if axes == 1 else 'c h w'} with c = {c} channels, or a batch of "
            f"such, got an array of shape {given}"
        )
    x = x.to(device)
    if axes == 3 and not normalized:
        _require_finite(x)
        x = normalized_slices(x, config.data.normalize)
    x = x.float()
    _require_finite(x)
    return x.contiguous(memory_format=torch.channels_last) if axes == 3 else x


def _require_finite(x: Tensor) -> None:
    """Refuse values that are none in float32."""
    if x.is_floating_point() and not (finite := x.float().isfinite()).all():
        raise MueError(
            f"`image` must be finite, got {int((~finite).sum())} values that are NaN or infinite; "
            "replace them first"
        )


def _picture_array(image: Image.Image, channels: int) -> Shaped[np.ndarray, "c h w"]:
    """An image of Pillow as its file is read: upright, without a palette, as grey or colour."""
    try:
        pixels = plain_values(opened_picture(image).image())
    except MueError as error:
        raise MueError(f"`image` {error}") from None
    return with_channels(RawImage(pixels[:, None], None, ()), channels, "`image`").pixels[:, 0]


def _plain_array(image: np.ndarray | Sequence[Any]) -> np.ndarray:
    """A copy as an array that torch can take."""
    try:
        array = np.array(image)
    except ValueError:
        raise MueError("`image` must be an array, got lists of different lengths") from None
    if array.dtype.kind not in "buif" or array.dtype.itemsize > 8:
        raise MueError(f"`image` must be an array of real numbers, got one of {array.dtype}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def network_input(
    pixels: Shaped[np.ndarray, "c d h w"], config: NormalizeConfig, bits: int | None = None
) -> Float[Tensor, "d c h w"]:
    """The slices of an image file as a network takes them."""
    slices = torch.from_numpy(np.ascontiguousarray(pixels.swapaxes(0, 1)))
    return normalized_slices(slices, config, bits)


def normalized_slices(
    x: Shaped[Tensor, "b c h w"], config: NormalizeConfig, bits: int | None = None
) -> Float[Tensor, "b c h w"]:
    """Images or slices, in the values of their files, each normalized by itself as in training.

    A model of bytes (`unit`) divides unsigned values of 8 or 16 bits by the maximum of their type,
    or of the `bits` that DICOM stores. It has not learned from others (`Slices` refuses them):
    a slice of a scan, with other whole numbers or with real ones below 0 or beyond 1, is scaled by
    its own range, as the crops of LIDC-IDRI are. Booleans are black and white, 0 and 255.
    """
    x = 255 * x.byte() if x.dtype == torch.bool else x
    each = x.split(1)
    if config.kind == "unit" and x.dtype not in (torch.uint8, torch.uint16):
        each = map(_scaled, each)
    return torch.cat([normalize(one, config, bits=bits) for one in each])


def _scaled(x: Shaped[Tensor, "1 c h w"]) -> Float[Tensor, "1 c h w"]:
    """By its own range, unless these are real numbers in 0..1."""
    real = x.is_floating_point()
    x = x.float() if real else x.double()
    low, high = float(x.min()), float(x.max())
    if real and low >= 0 and high <= 1:
        return x
    return ((x.double() - low) / max(high - low, 1e-8)).float()


def with_channels(raw: RawImage, channels: int, name: str) -> RawImage:
    """The same picture with grey as colour, or colour as grey, where the model takes the other.

    The channels of a volume are no colours, unless they are bytes.
    """
    pixels, c = raw.pixels, len(raw.pixels)
    picture = raw.geometry is None
    if (c, channels) == (1, 3) and picture:
        pixels = np.broadcast_to(pixels, (3, *pixels.shape[1:]))
    elif (c, channels) == (3, 1) and (picture or pixels.dtype == np.uint8):
        grey = np.tensordot(_LUMA, pixels, axes=1)[None]
        pixels = (grey if pixels.dtype.kind == "f" else grey.round()).astype(pixels.dtype)
    elif c != channels:
        raise MueError(
            f"{name} must have the {channels} channels that this model takes, and it has {c}"
        )
    return replace(raw, pixels=pixels)
