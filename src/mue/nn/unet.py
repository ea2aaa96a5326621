"""The paper's residual U-Net, with the code entering at a chosen level of the decoder."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mue.errors import MueError
from mue.nn.backbone import Features
from mue.nn.blocks import Norm, ResidualBlock, UpsampleConcat, downsample, pad_to_multiple

DROPOUT_BLOCKS = 2
"""Innermost blocks, of the encoder and of the decoder, that dropout follows."""


class UNetEncoder(nn.Module):
    """Downsampling residual blocks.

    `[16, 32, 64, 128] + [128, 128]` in the paper's notation is `levels=(16, 32, 64, 128),
    tail=(128, 128)`: the levels feed the decoder, the tail only the pooled vector. The first block
    works at full resolution, each further one at half of the one before. An image whose sides are
    no multiples of the stride of the levels, here 8, is padded at its lower and right edge.
    """

    axes = 3

    def __init__(
        self,
        c_in: int,
        levels: Sequence[int],
        tail: Sequence[int],
        *,
        norm: Norm = "none",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        widths = [c_in, *levels, *tail]
        self.depth = len(levels)
        self.stride = 2 ** (self.depth - 1)  # pixels to a pixel of the coarsest level
        self.blocks = nn.ModuleList(ResidualBlock(a, b, norm=norm) for a, b in pairwise(widths))

    def drops(self, i: int) -> bool:
        """Whether dropout follows block i. It is never off: an answer is a sample with it."""
        return self.dropout > 0 and i >= self.depth - DROPOUT_BLOCKS

    def forward(self, x: Float[Tensor, "b c h w"]) -> Features:
        """The features of a batch of images at every level, and their global average."""
        h, outs = pad_to_multiple(x, self.stride), list[Tensor]()
        for i, block in enumerate(self.blocks):
            out = block(downsample(h) if i else h)
            h = F.dropout(out, self.dropout) if self.drops(i) else out
            outs.append(h)
        return Features(tuple(outs[: self.depth]), h.mean(dim=(2, 3)), tuple(x.shape[-2:]))


class Concatenate(nn.Module):
    """Copy the code over height and width and concatenate it [paper, section `method`]."""

    def __init__(self, channels: int, code_width: int) -> None:
        super().__init__()
        self.channels = channels + code_width

    def forward(
        self, h: Float[Tensor, "b c h w"], codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "bk c2 h w"]:
        """One feature map for each code of each input."""
        k = codes.shape[1]
        plane = codes.flatten(0, 1)[:, :, None, None].expand(-1, -1, *h.shape[-2:])
        return torch.cat([repeat(h, k), plane.to(h.dtype)], dim=1)

    def fold(
        self, conv: nn.Conv2d, codes: Float[Tensor, "b k d"]
    ) -> tuple[Float[Tensor, "b 1 o c"], Float[Tensor, "b k o"]]:
        """Weight and bias of a 1x1 convolution of h that equals joining the codes, then `conv`.

        The weight is the same for all codes: only the bias depends on them.
        """
        b, _, d = codes.shape
        of_h, of_code = conv.weight[:, :, 0, 0].split([conv.in_channels - d, d], dim=1)
        return of_h.expand(b, 1, -1, -1), F.linear(codes, of_code, conv.bias)


class ScaleShift(nn.Module):
    """The code scales and shifts each channel (FiLM): cheaper than concatenation for large k."""

    def __init__(self, channels: int, code_width: int) -> None:
        super().__init__()
        self.channels = channels
        self.read = nn.Linear(code_width, 2 * channels)

    def forward(
        self, h: Float[Tensor, "b c h w"], codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "bk c h w"]:
        """One feature map for each code of each input."""
        scale, shift = self.read(codes).flatten(0, 1)[:, :, None, None].chunk(2, dim=1)
        return repeat(h, codes.shape[1]) * (1 + scale) + shift

    def fold(
        self, conv: nn.Conv2d, codes: Float[Tensor, "b k d"]
    ) -> tuple[Float[Tensor, "b k o c"], Float[Tensor, "b k o"]]:
        """Weight and bias of a 1x1 convolution of h that equals joining the codes, then `conv`."""
        weight = conv.weight[:, :, 0, 0]
        scale, shift = self.read(codes).chunk(2, dim=2)
        return weight * (1 + scale[:, :, None]), F.linear(shift, weight, conv.bias)


Join = Concatenate | ScaleShift


class Readout(nn.ModuleList):
    """1x1 convolutions, with a ReLU between two, for a code that enters after the last stage.

    Joining is affine in h and so is the convolution after it: together they are one matrix for
    each code, all codes are one matrix product, and h is not copied k times.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        layers = [m for a, b in pairwise(widths) for m in (nn.Conv2d(a, b, 1), nn.ReLU())]
        super().__init__(layers[:-1])

    @property
    def convs(self) -> list[nn.Conv2d]:
        """The convolutions in order."""
        return [m for m in self if isinstance(m, nn.Conv2d)]

    def forward(
        self, h: Float[Tensor, "b c h w"], join: Join, codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "b k c2 h w"]:
        """Logits of the answer to each code."""
        first, *others = self.convs
        logits = first_layer(h.flatten(2).mT, *join.fold(first, codes))
        for conv in others:
            logits = self.conv1x1(logits.relu(), conv)
        return logits.permute(0, 2, 3, 1).unflatten(3, h.shape[-2:])

    @staticmethod
    def conv1x1(h: Float[Tensor, "b p k c"], conv: nn.Conv2d) -> Float[Tensor, "b p k c2"]:
        """A 1x1 convolution where channels are the last axis."""
        return F.linear(h, conv.weight[:, :, 0, 0], conv.bias)


def first_layer(
    pixels: Float[Tensor, "b p c"], weight: Float[Tensor, "b k2 o c"], bias: Float[Tensor, "b k o"]
) -> Float[Tensor, "b p k o"]:
    """The folded first layer of a readout, where k2 is k or, with one weight for all codes, 1."""
    b, k, o, _ = weight.shape
    matrix = weight.reshape(b, k * o, -1).mT.to(pixels.dtype)
    return (pixels @ matrix).unflatten(2, (k, o)) + bias[:, None].to(pixels.dtype)


class UNetDecoder(nn.Module):
    """Upsampling residual blocks; each reads the encoder's features of its own resolution.

    Stage 1 works at the bottom, the last stage at full resolution, and `level` says where the code
    enters: before stage `level`, or, one past the last stage, before the 1x1 convolutions that
    read the answer off the finest features. Everything before it is computed once for each
    input, whatever the number of codes: at level 1 (the paper's) the whole decoder runs for each
    code, at the last level almost nothing does. `join` makes the module that joins a code to
    features of so many channels.
    """

    def __init__(
        self,
        levels: Sequence[int],
        widths: Sequence[int],
        c_out: int,
        *,
        join: Callable[[int], Join],
        level: int = 1,
        norm: Norm = "none",
        readout: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        stages = len(levels)
        if not len(widths) == stages - 1 >= 1:
            raise MueError(
                f"model.widths must be one entry less than the {stages} of model.levels (the last "
                f"stage gives the answer), and at least one, got {widths}"
            )
        if not 1 <= level <= stages + 1:
            raise MueError(f"model.code_level must be in 1..{stages + 1}, got {level}")
        self.late = level == stages + 1  # the code enters after the last stage
        self.level = level
        self.dropout = dropout
        self.up = UpsampleConcat()
        outs = [*widths, widths[-1] if self.late else c_out]
        below, self.stages = 0, nn.ModuleList()
        for i, (skip, out) in enumerate(zip(reversed(levels), outs, strict=True), start=1):
            entering = below + skip
            if i == level:
                self.join = join(entering)
                entering = self.join.channels
            last = i == stages and not self.late
            inner = widths[-1] if last else None
            self.stages.append(ResidualBlock(entering, out, inner=inner, norm=norm, linear=last))
            below = out
        if self.late:
            self.join = join(below)
            if readout == 1 and isinstance(self.join, Concatenate):
                raise MueError(
                    "model.readout must be 2 or more where a code that enters at the top is "
                    "concatenated, as a single convolution would only shift all pixels alike, got 1"
                )
            self.readout = Readout([self.join.channels, *[below] * (readout - 1), c_out])

    def forward(
        self, features: Features, codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "b k c h w"]:
        """Logits of the answer to each code, of the size the encoder was given."""
        h, skips = features.levels[-1], features.levels[::-1]
        for i, stage in enumerate(self.stages, start=1):
            h = self.stage_input(i, h, skips)
            h = stage(self.join(h, codes) if i == self.level else h)
            if self.dropout and i <= DROPOUT_BLOCKS:
                h = F.dropout(h, self.dropout)
        height, width = features.size
        if self.late:
            return self.readout(h[..., :height, :width], self.join, codes)
        return h.unflatten(0, codes.shape[:2])[..., :height, :width]

    def stage_input(self, i: int, h: Tensor, skips: Sequence[Tensor]) -> Tensor:
        """What stage i reads: the stage below, upsampled, and the skip connection."""
        if i == 1:
            return h
        return self.up(h, repeat(skips[i - 1], len(h) // len(skips[0])))


def repeat(h: Float[Tensor, "b c h w"], k: int) -> Float[Tensor, "bk c h w"]:
    """Each feature map k times in a row."""
    return h if k == 1 else h.repeat_interleave(k, dim=0)
