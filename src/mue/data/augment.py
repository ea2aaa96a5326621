"""Turned, scaled, shifted, mirrored: other views of the same slices, made on the whole batch."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mue.config.schema import ViewsConfig

DRAWS = 9
"""Uniform numbers that one view needs."""


def view(
    x: Float[Tensor, "b c h w"],
    y: Float[Tensor, "b r h w"],
    u: Float[Tensor, "b 9"],
    views: ViewsConfig,
) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b r h w"]]:
    """A view of each slice, and the same view of its masks.

    `u` are uniform numbers in [0, 1): the view follows from them alone. Grey values are
    interpolated, masks take their nearest pixel, so they stay masks. What comes in from outside is
    a mirror image of the slice, without any mask.
    """
    signed = 2 * u - 1
    h, w = x.shape[-2:]
    angle = signed[:, 0] * torch.pi * views.rotate / 180
    factor = (1 + views.scale) ** signed[:, 1]
    mirror = 1 - 2 * ((u[:, 2:4] < 0.5) & views.flip).float()
    cos, sin = angle.cos() / factor, angle.sin() / factor
    rows = [
        torch.stack(
            [cos * mirror[:, 0], -sin * mirror[:, 1] * h / w, 2 * signed[:, 4] * views.shift]
        ),
        torch.stack(
            [sin * mirror[:, 0] * w / h, cos * mirror[:, 1], 2 * signed[:, 5] * views.shift]
        ),
    ]
    affine = torch.stack(rows).permute(2, 0, 1)
    grid = F.affine_grid(affine, [len(x), 1, h, w], align_corners=False)
    seen = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    drawn = F.grid_sample(y, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    contrast, brightness, gamma = (
        views.intensity * signed[:, i, None, None, None] for i in (6, 7, 8)
    )
    seen = seen.clamp(0, 1) ** (1 + gamma)
    mean = seen.mean(dim=(1, 2, 3), keepdim=True)
    return ((seen - mean) * (1 + contrast) + mean * (1 + brightness)).clamp(0, 1), drawn
