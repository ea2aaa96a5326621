"""Residual blocks and the resampling between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mue.nn.shared import Shared

Norm = Literal["none", "group"]
Also = Literal["half", "mean"]
"""What is made of a block's output besides."""
SHARED_KIB = 227
"""KiB of shared memory that the kernels are cut for: that of an H100."""


def normalization(kind: Norm, channels: int) -> nn.Module:
    """A normalization layer: groups of 8 channels, or of all where 8 does not fit."""
    if kind == "none":
        return nn.Identity()
    return GroupNorm(channels // 8 if channels % 8 == 0 else 1, channels)


class GroupNorm(nn.GroupNorm):
    """The same as torch's; on a GPU a compiler is given it so that images are left as they lie.

    Torch's form has the channels of a group in one piece: images in channels_last would be copied
    there and back, in both directions.
    """

    def forward(self, input: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:  # noqa: A002
        """Normalize each group of channels, then scale and shift each channel."""
        if input.is_cuda and torch.compiler.is_compiling():
            return self.by_channels(input)
        return super().forward(input)

    def by_channels(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The same from the moments of single channels, in float32 as autocast does it.

        They are those of what differs from one of the pixels: squares of numbers far from 0 would
        leave few digits for what they differ in.
        """
        x = x.float()
        pixel = x[:, :, :1, :1].detach()
        gap = x - pixel
        mean, square = gap.mean(dim=(2, 3), keepdim=True), gap.square().mean((2, 3), keepdim=True)
        var, mean = square - mean.square(), mean + pixel
        of_group = self._over_groups(mean)
        var = self._over_groups(var + (mean - of_group).square())
        scale = (var + self.eps).rsqrt() * self.weight[:, None, None]
        return (x - of_group) * scale + self.bias[:, None, None]

    def _over_groups(self, x: Float[Tensor, "b c 1 1"]) -> Float[Tensor, "b c 1 1"]:
        """Each channel's value replaced by the mean over its group."""
        groups = x.unflatten(1, (self.num_groups, -1))
        return groups.mean(dim=2, keepdim=True).expand_as(groups).flatten(1, 2)


@dataclass(frozen=True, slots=True)
class Rest:
    """What the two linear maps of a residual block make of some channels of an input.

    Attributes:
        first: The first convolution, with its bias.
        shortcut: The shortcut, with its bias.
    """

    first: Float[Tensor, "b c h w"]
    shortcut: Float[Tensor, "b c2 h w"]


def _countable(x: Tensor, channels: int) -> bool:
    """Whether 32 bits, with which the kernels count, are enough for images of so many channels."""
    b, _, h, w = x.shape
    return b * h * w * channels < 1 << 31


def ready(x: Tensor) -> Tensor:
    """As the kernels take it."""
    return x.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)


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
        self.widest = max(c_in, inner, c_out)
        """Channels at the most."""
        self.kernels = False
        self.recompute = False
        self.shared: Shared | None = None
        """What a training keeps for it; without it each pass rounds the weights for itself."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h w"]:
        """The block's output, of the same height and width."""
        if self.kernels and _countable(x, self.widest):
            return self._fused(x)[0]
        if self.recompute and torch.is_grad_enabled():
            return cast("Tensor", checkpoint(self._plain, x, use_reentrant=False))
        return self._plain(x)

    def fall(
        self, x: Float[Tensor, "b c h w"]
    ) -> tuple[Float[Tensor, "b c2 h w"], Float[Tensor, "b c2 h2 w2"]]:
        """The block's output, and the same halved: what the next level of an encoder is given."""
        return self._with(x, "half")

    def end(
        self, x: Float[Tensor, "b c h w"]
    ) -> tuple[Float[Tensor, "b c2 h w"], Float[Tensor, "b c2"]]:
        """The block's output, and its mean over the pixels: where an encoder ends."""
        return self._with(x, "mean")

    def _with(self, x: Tensor, also: Also) -> tuple[Tensor, Tensor]:
        if self.kernels and _countable(x, self.widest):
            out, smaller = self._fused(x, also=also)
            return out, smaller
        out = self(x)
        return out, halve(out) if also == "half" else out.mean(dim=(2, 3))

    def _plain(self, x: Tensor) -> Tensor:
        return self.out(self.body(x) + self.shortcut(x))

    def split(self, skip: Float[Tensor, "b c h w"]) -> Rest | None:
        """What becomes of the last channels of an input, for inputs that have them in common.

        The first convolution and the shortcut are linear, so what they make of some channels can
        be computed once and added. None where the shortcut is no convolution.
        """
        first, own = cast("nn.Conv2d", self.body[0]), self.shortcut
        if not isinstance(own, nn.Conv2d):
            return None
        c = skip.shape[1]
        return Rest(
            F.conv2d(skip, first.weight[:, -c:], first.bias, padding=1),
            F.conv2d(skip, own.weight[:, -c:], own.bias),
        )

    def join(self, x: Float[Tensor, "k c h w"], rest: Rest) -> Float[Tensor, "k c2 h w"]:
        """The block's output for inputs whose last channels `rest` stands for. No gradients."""
        first, own = cast("nn.Conv2d", self.body[0]), cast("nn.Conv2d", self.shortcut)
        c = x.shape[1]
        h = F.conv2d(x, first.weight[:, :c], None, padding=1).add_(rest.first)
        for part in list(self.body)[1:]:
            h = h.relu_() if isinstance(part, nn.ReLU) else part(h)
        h = h.add_(F.conv2d(x, own.weight[:, :c])).add_(rest.shortcut)
        return h if self.linear else h.relu_()

    def _fused(self, x: Tensor, *, also: Also | None = None) -> tuple[Tensor, ...]:
        from mue.kernels.fused import residual  # Triton is not everywhere

        weights = [p for layer in self.layers() for p in layer.parameters()]
        kept = self.shared or Shared([(m.weight.bfloat16(), m.bias) for m in self.layers()])
        return residual(kept, ready(x), *weights, linear=self.linear, also=also)

    def layers(self) -> list[nn.Conv2d]:
        """Its convolutions in order, that of the shortcut last."""
        return [m for m in [*self.body, self.shortcut] if isinstance(m, nn.Conv2d)]


def compute_(module: nn.Module, *, kernels: bool, recompute: bool) -> None:
    """Choose how the parts of a module compute; what they compute stays the same."""
    for part in cast("Iterable[Any]", module.modules()):
        if hasattr(part, "kernels"):
            part.kernels = kernels
        if hasattr(part, "recompute"):
            part.recompute = recompute


def halve(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h2 w2"]:
    """Half the height and width, rounded up.

    Bilinear resampling by one half reads each output at the centre of a 2x2 block, so it is the
    mean of the block; written as pooling, its gradient is a copy instead of a scatter. Half a block
    at the edge is made whole by repeating it. Pooling with `ceil_mode` would give the same, but
    torch.compile gets its gradient wrong (pytorch issue 198119).
    """
    for side in (2, 3):
        if x.shape[side] % 2:
            x = torch.cat([x, x.narrow(side, -1, 1)], side)
    return F.avg_pool2d(x, 2)


def double(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h2 w2"]:
    """Twice the height and width, bilinear.

    Along one side, new samples lie a quarter to each side of an old one: 3/4 of it and 1/4 of its
    neighbour. Written so, a compiler fuses it with what surrounds it, and its gradient needs no
    atomic additions; torch's own kernel is the faster one where nothing is compiled.
    """
    if not torch.compiler.is_compiling():
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
    layout = torch.channels_last if x.is_contiguous(memory_format=torch.channels_last) else None
    for side in (2, 3):
        n = x.shape[side]
        before = torch.cat([x.narrow(side, 0, 1), x.narrow(side, 0, n - 1)], side)
        after = torch.cat([x.narrow(side, 1, n - 1), x.narrow(side, n - 1, 1)], side)
        pair = torch.stack([0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after], side + 1)
        x = pair.flatten(side, side + 1)
    return x if layout is None else x.contiguous(memory_format=layout)


class Rise(nn.Module):
    """From one level of a decoder to the next: doubled, beside what the encoder saw there."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = False

    def forward(
        self, h: Float[Tensor, "b c h w"], skip: Float[Tensor, "b c2 h2 w2"]
    ) -> Float[Tensor, "b c3 h2 w2"]:
        """Both, one after the other in their channels."""
        if self.kernels and _countable(skip, h.shape[1] + skip.shape[1]):
            from mue.kernels.fused import rise  # Triton is not everywhere

            return rise(ready(h), ready(skip))
        return torch.cat([double(h), skip], dim=1)


def pad_to_multiple(x: Float[Tensor, "b c h w"], multiple: int) -> Float[Tensor, "b c h2 w2"]:
    """Repeat the last row and column until both sides are multiples of `multiple`."""
    h, w = x.shape[-2:]
    down, right = -h % multiple, -w % multiple
    return F.pad(x, (0, right, 0, down), mode="replicate") if down or right else x
