"""Random augmentation of slices and their masks, computed on a whole batch."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mue.config.schema import AugmentConfig

N_UNIFORM = 9
"""Uniform random numbers that the augmentation of one slice takes."""


def augment_slices(
    x: Float[Tensor, "b c h w"],
    y: Float[Tensor, "b r h w"],
    u: Float[Tensor, "b 9"],
    config: AugmentConfig,
    *,
    size: tuple[int, int] | None = None,
    bounded: bool = True,
) -> tuple[Float[Tensor, "b c h2 w2"], Float[Tensor, "b r h2 w2"]]:
    """Rotate, scale, shift and flip each slice with its masks; change contrast and brightness.

    `u` are uniform numbers in [0, 1), and the result is a function of them alone. Grey values are
    interpolated, masks take the nearest pixel, so they stay binary. Outside of the slice its
    reflection is seen, without a mask.

    With `size` the result is a patch of this size about the middle of x, which `window_size` says
    how large to take. `bounded` says that grey values are in [0, 1], and are to stay there.
    """
    signed = 2 * u - 1
    h, w = x.shape[-2:] if size is None else size
    angle = signed[:, 0] * torch.pi * config.rotate / 180
    factor = (1 + config.scale) ** signed[:, 1]
    flip = 1 - 2 * ((u[:, 2:4] < 0.5) & config.flip).float()
    cos, sin = angle.cos() / factor, angle.sin() / factor
    rows = [
        torch.stack([cos * flip[:, 0], -sin * flip[:, 1] * h / w, 2 * signed[:, 4] * config.shift]),
        torch.stack([sin * flip[:, 0] * w / h, cos * flip[:, 1], 2 * signed[:, 5] * config.shift]),
    ]
    rows = [rows[0] * (w / x.shape[-1]), rows[1] * (h / x.shape[-2])]
    affine = torch.stack(rows).permute(2, 0, 1)
    grid = F.affine_grid(affine, [len(x), 1, h, w], align_corners=False)
    image = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    masks = F.grid_sample(y, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    if bounded:
        return _change_intensity(image.clamp(0, 1), signed, config).clamp(0, 1), masks
    if not config.intensity:
        return image, masks
    low, high = image.amin(dim=(1, 2, 3), keepdim=True), image.amax(dim=(1, 2, 3), keepdim=True)
    extent = (high - low).clamp_min(torch.finfo(image.dtype).tiny)
    return _change_intensity((image - low) / extent, signed, config) * extent + low, masks


def _change_intensity(
    image: Float[Tensor, "b c h w"], signed: Float[Tensor, "b 9"], config: AugmentConfig
) -> Float[Tensor, "b c h w"]:
    """Change contrast, brightness and gamma of grey values in [0, 1]."""
    contrast, brightness, gamma = (
        config.intensity * signed[:, i, None, None, None] for i in (6, 7, 8)
    )
    image = image ** (1 + gamma)
    mean = image.mean(dim=(1, 2, 3), keepdim=True)
    return (image - mean) * (1 + contrast) + mean * (1 + brightness)


def window_size(size: tuple[int, int], config: AugmentConfig) -> tuple[int, int]:
    """Height and width of what an augmented patch may see, around its middle.

    >>> window_size((64, 64), AugmentConfig())
    (64, 64)
    >>> window_size((64, 64), AugmentConfig(rotate=180.0, scale=0.25, shift=0.1))
    (128, 128)
    """

    def side(along: int, across: int) -> int:
        angle = min(math.radians(config.rotate), math.atan2(across, along))
        reach = (1 + config.scale) * (along * math.cos(angle) + across * math.sin(angle))
        more = reach + 2 * config.shift * along - along
        return along + (2 * math.ceil(more / 2 + 1) if more > 1e-6 else 0)  # as much on either side

    return side(size[0], size[1]), side(size[1], size[0])
