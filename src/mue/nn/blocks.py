"""Residual blocks and the resampling between them."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Norm = Literal["none", "group"]


def normalization(kind: Norm, channels: int) -> nn.Module:
    """A normalization layer: groups of 8 channels, or of all where 8 does not fit."""
    if kind == "none":
        return nn.Identity()
    return nn.GroupNorm(channels // 8 if channels % 8 == 0 else 1, channels)


class ResidualBlock(nn.Module):
    """Three 3x3 convolutions and a shortcut [paper, appendix `experiment details`].

    The shortcut is the input itself where the width stays, otherwise a 1x1 convolution. A ReLU
    follows each convolution but the last, and the sum; `linear` leaves the one on the sum out, for
    a block whose output is logits. The paper does not mention normalization: `norm` chooses.
    """

    def __init__(
        self,
        c_in: int,
        c_out: int,
        *,
        inner: int | None = None,
        norm: Norm = "none",
        linear: bool = False,
    ) -> None:
        super().__init__()
        inner = c_out if inner is None else inner
        self.body = nn.Sequential(
            nn.Conv2d(c_in, inner, 3, padding=1),
            normalization(norm, inner),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, padding=1),
            normalization(norm, inner),
            nn.ReLU(),
            nn.Conv2d(inner, c_out, 3, padding=1),
            nn.Identity() if linear else normalization(norm, c_out),
        )
        self.shortcut = nn.Identity() if c_in == c_out else nn.Conv2d(c_in, c_out, 1)
        self.out = nn.Identity() if linear else nn.ReLU()
        self.linear = linear

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h w"]:
        """The block's output, of the same height and width."""
        return self.out(self.body(x) + self.shortcut(x))


def downsample(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h2 w2"]:
    """Half the height and width, rounded up, bilinear.

    Bilinear resampling by one half reads each output at the centre of a 2x2 block, so it is the
    mean of the block; written as pooling, its gradient is a copy instead of a scatter. An odd last
    row or column is repeated first; pooling with `ceil_mode` would give the same, but a compiler
    gets its gradient wrong (pytorch issue 198119).
    """
    for side in (2, 3):
        if x.shape[side] % 2:
            x = torch.cat([x, x.narrow(side, -1, 1)], side)
    return F.avg_pool2d(x, 2)


def upsample(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h2 w2"]:
    """Twice the height and width, bilinear."""
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


class UpsampleConcat(nn.Module):
    """From one level of a decoder to the next: upsampled, then concatenated with the skip."""

    def forward(
        self, h: Float[Tensor, "b c h w"], skip: Float[Tensor, "b c2 h2 w2"]
    ) -> Float[Tensor, "b c3 h2 w2"]:
        """Features of twice the size, followed by the channels of the skip connection."""
        return torch.cat([upsample(h), skip], dim=1)


def pad_to_multiple(x: Float[Tensor, "b c h w"], multiple: int) -> Float[Tensor, "b c h2 w2"]:
    """Repeat the last row and column until both sides are multiples of `multiple`."""
    h, w = x.shape[-2:]
    down, right = -h % multiple, -w % multiple
    return F.pad(x, (0, right, 0, down), mode="replicate") if down or right else x
