"""Random augmentation of slices and their masks, computed on a whole batch."""

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
) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b r h w"]]:
    """Rotate, scale, shift and flip each slice with its masks; change contrast and brightness.

    `u` are uniform numbers in [0, 1), and the result is a function of them alone. Grey values are
    interpolated, masks take the nearest pixel, so they stay binary. Outside of the slice its
    reflection is seen, without a mask.
    """
    signed = 2 * u - 1
    h, w = x.shape[-2:]
    angle = signed[:, 0] * torch.pi * config.rotate / 180
    factor = (1 + config.scale) ** signed[:, 1]
    flip = 1 - 2 * ((u[:, 2:4] < 0.5) & config.flip).float()
    cos, sin = angle.cos() / factor, angle.sin() / factor
    rows = [
        torch.stack([cos * flip[:, 0], -sin * flip[:, 1] * h / w, 2 * signed[:, 4] * config.shift]),
        torch.stack([sin * flip[:, 0] * w / h, cos * flip[:, 1], 2 * signed[:, 5] * config.shift]),
    ]
    affine = torch.stack(rows).permute(2, 0, 1)
    grid = F.affine_grid(affine, [len(x), 1, h, w], align_corners=False)
    image = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    masks = F.grid_sample(y, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    contrast, brightness, gamma = (
        config.intensity * signed[:, i, None, None, None] for i in (6, 7, 8)
    )
    image = image.clamp(0, 1) ** (1 + gamma)
    mean = image.mean(dim=(1, 2, 3), keepdim=True)
    return ((image - mean) * (1 + contrast) + mean * (1 + brightness)).clamp(0, 1), masks
