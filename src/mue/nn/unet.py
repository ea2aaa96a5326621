"""The paper's residual U-Net, with the code entering at a chosen level of the decoder."""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mue.errors import MueError
from mue.nn.backbone import Features
from mue.nn.blocks import (
    Norm,
    ResidualBlock,
    Rest,
    Rise,
    double,
    halve,
    pad_to_multiple,
    ready,
)

INNERMOST = 2
"""Blocks at the bottom, of the encoder and of the decoder, that dropout follows."""
_CACHED = 1 << 20  # numbers of the finest feature map that a processor keeps at hand


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
        self.kernels = False
        widths = [c_in, *levels, *tail]
        self.depth = len(levels)
        self.blocks = nn.ModuleList(ResidualBlock(a, b, norm=norm) for a, b in pairwise(widths))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Features:
        """Look at a batch of images."""
        h, size = self.enter(x), tuple(x.shape[-2:])
        seen: list[Tensor] = []
        for i, block in enumerate(cast("list[ResidualBlock]", self.blocks)):
            last = i == len(self.blocks) - 1
            if self.dropout and i >= self.depth - INNERMOST:
                out = F.dropout(block(h), self.dropout)  # never off: an answer is a draw with it
                h = out.mean(dim=(2, 3)) if last else halve(out)
            else:
                out, h = block.end(h) if last else block.fall(h)
            seen.append(out)
        return Features(tuple(seen[: self.depth]), h, size)

    def enter(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h2 w2"]:
        """The images as the first block takes them."""
        h = pad_to_multiple(x, 2 ** (self.depth - 1))
        return ready(h) if self.kernels else h


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
        """Weight and bias of a 1x1 convolution of h that does what join and `conv` do.

        The weight is the same for all codes: only the bias knows them.
        """
        b, _, d = codes.shape
        own, of_code = conv.weight[:, :, 0, 0].split([conv.in_channels - d, d], dim=1)
        return own.expand(b, 1, -1, -1), F.linear(codes, of_code, conv.bias)


class ScaleShift(nn.Module):
    """Let the code scale and shift each channel: cheaper than concatenation where k is large."""

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
        """Weight and bias of one 1x1 convolution of h that does what join and `conv` do."""
        weight = conv.weight[:, :, 0, 0]
        scale, shift = self.read(codes).chunk(2, dim=2)
        return weight * (1 + scale[:, :, None]), F.linear(shift, weight, conv.bias)


Join = Concatenate | ScaleShift


class UNetDecoder(nn.Module):
    """Upsampling residual blocks; each reads the encoder's features of its own resolution.

    Stage 1 works at the bottom, the last stage at full resolution, and `level` says where the code
    enters: before stage `level`, or, one past the last stage, before two 1x1 convolutions that
    read the answer off the finest features. All that lies before it is computed once for each
    input, whatever the number of codes: at level 1 (the paper's) the whole decoder runs for each
    code, at the last level almost nothing does.
    """

    def __init__(
        self,
        levels: Sequence[int],
        widths: Sequence[int],
        c_out: int,
        *,
        code_width: int,
        level: int = 1,
        join: type[Join] = Concatenate,
        norm: Norm = "none",
        readout: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        stages = len(levels)
        if stages < 2:
            raise MueError(f"`levels` must have at least two entries, got {stages}")
        if len(widths) != stages - 1:
            raise MueError(
                f"`widths` must have one entry less than the {stages} `levels` (the last stage "
                f"gives the answer), got {len(widths)}"
            )
        if not 1 <= level <= stages + 1:
            raise MueError(f"`level` must be in 1..{stages + 1}, got {level}")
        self.level = level
        self.dropout = dropout
        self.kernels = False
        self.rise = Rise()
        late = level == stages + 1
        outs = [*widths, widths[-1] if late else c_out]
        below, self.stages = 0, nn.ModuleList()
        for i, (skip, out) in enumerate(zip(reversed(levels), outs, strict=True), start=1):
            entering = below + skip
            if i == level:
                self.join = join(entering, code_width)
                entering = self.join.channels
            last = i == stages and not late
            inner = widths[-1] if last else None
            self.stages.append(ResidualBlock(entering, out, inner=inner, norm=norm, linear=last))
            below = out
        if late:
            self.join = join(below, code_width)
            widths_out = [self.join.channels, *[below] * (readout - 1), c_out]
            convs = [m for a, b in pairwise(widths_out) for m in (nn.Conv2d(a, b, 1), nn.ReLU())]
            self.readout = nn.Sequential(*convs[:-1])

    def forward(
        self, features: Features, codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "b k c h w"]:
        """Logits of the answer to each code, of the size the encoder was given."""
        b, k = codes.shape[:2]
        if k > 1 and self.level <= len(self.stages) and not torch.is_grad_enabled():
            return self._each(features, codes)
        h, skips = features.levels[-1], list(reversed(features.levels))
        for i, stage in enumerate(self.stages, start=1):
            h = self._entering(i, h, skips)
            h = stage(self.enter(h, codes) if i == self.level else h)
            if self.dropout and i <= INNERMOST:
                h = F.dropout(h, self.dropout)
        height, width = features.size
        if self.level > len(self.stages):
            return self.read_out(h[..., :height, :width], codes)
        return h.unflatten(0, (b, k))[..., :height, :width]

    def enter(
        self, h: Float[Tensor, "b c h w"], codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "bk c2 h w"]:
        """The features joined with the codes, as the first stage that knows them takes them."""
        joined = self.join(h, codes)
        return ready(joined) if self.kernels else joined

    def _each(
        self, features: Features, codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "b k c h w"]:
        """The same, a few codes at a time, with all that they share computed once.

        They share the stages before the code enters, and of the later ones what the first
        convolution makes of the encoder's features. A few, so that their feature maps stay in the
        cache of a processor; an accelerator takes all of them.
        """
        before = features.levels[-1]
        skips = list(reversed(features.levels))
        for i in range(1, self.level):
            before = self._stage(i, before, skips)
        blocks = [cast("ResidualBlock", stage) for stage in self.stages]
        rests = [None] + [b.split(s) for b, s in zip(blocks[1:], skips[1:], strict=True)]
        finest = skips[-1][0].numel()
        some = codes.shape[1] if before.is_cuda else max(1, _CACHED // finest)
        found: list[Tensor] = []
        for row in range(len(codes)):
            rows = slice(row, row + 1)
            here, seen = before[rows], [s[rows] for s in skips]
            for part in codes[rows].split(some, dim=1):
                h = here
                for i in range(self.level, len(blocks) + 1):
                    rest = rests[i - 1]
                    if i == self.level:
                        h = blocks[i - 1](self.join(self._entering(i, h, seen), part))
                    elif rest is None:
                        h = self._stage(i, h, seen)
                    else:
                        h = blocks[i - 1].join(
                            double(h), Rest(rest.first[rows], rest.shortcut[rows])
                        )
                found.append(h)
        height, width = features.size
        return torch.cat(found).unflatten(0, codes.shape[:2])[..., :height, :width]

    def _entering(self, i: int, h: Tensor, skips: Sequence[Tensor]) -> Tensor:
        """What stage i is given: below it, and beside it."""
        if i == 1:
            return h
        return self.rise(h, repeat(skips[i - 1], len(h) // len(skips[0])))

    def _stage(self, i: int, h: Tensor, skips: Sequence[Tensor]) -> Tensor:
        return self.stages[i - 1](self._entering(i, h, skips))

    def read_out(
        self, h: Float[Tensor, "b c h w"], codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "b k c2 h w"]:
        """What the readout makes of h joined with each code, without k copies of h.

        Joining is affine in h and so is the convolution after it: together they are one matrix for
        each code, and all codes are one matrix product.
        """
        first, *others = [m for m in self.readout if isinstance(m, nn.Conv2d)]
        weight, bias = self.join.fold(first, codes)
        if weight.shape[1] == 1 and not torch.is_grad_enabled():
            return _sampled(h, weight[:, 0], bias, others)
        b, own, o, _ = weight.shape
        pixels = h.flatten(2).mT
        matrix = weight.reshape(b, own * o, -1).mT.to(pixels.dtype)
        bias = bias[:, None].to(pixels.dtype)

        def read(part: Tensor) -> Tensor:
            hidden = (part @ matrix).unflatten(2, (own, o)) + bias
            for conv in others:
                hidden = _along_last(hidden.relu(), conv)
            return hidden.permute(0, 2, 3, 1)

        # without gradients a few pixels at a time: what lies between the layers is large
        some = max(1, _at_hand(h) // bias.numel())
        parts = [pixels] if torch.is_grad_enabled() else pixels.split(some, dim=1)
        found = [read(part) for part in parts]
        whole = found[0] if len(found) == 1 else torch.cat(found, dim=3)
        return whole.unflatten(3, h.shape[-2:])


def _at_hand(h: Tensor) -> int:
    """Numbers that may lie between two layers: in a processor's cache, in a GPU's memory."""
    return 1 << 26 if h.is_cuda else 1 << 18


def _along_last(h: Float[Tensor, "b p k c"], conv: nn.Conv2d) -> Float[Tensor, "b p k c2"]:
    """A 1x1 convolution where channels are the last axis."""
    weight = conv.weight[:, :, 0, 0]
    if len(weight) == 1 and torch.compiler.is_compiling():  # a sum that is fused
        return (h * weight[0]).sum(dim=3, keepdim=True) + cast("Tensor", conv.bias)
    return F.linear(h, weight, conv.bias)


def _sampled(
    h: Float[Tensor, "b c h w"],
    weight: Float[Tensor, "b o c"],
    bias: Float[Tensor, "b k o"],
    others: Sequence[nn.Conv2d],
) -> Float[Tensor, "b k c2 h w"]:
    """The readout for thousands of codes, where only the bias of the first layer knows them.

    With a bias that differs from code to code, relu(a + bias) = max(a, -bias) + bias is one pass
    over the pixels: what is added is the same for all of them, so the next layer is told in its own
    bias. A few codes at a time, so that what lies between the layers stays in the cache of a
    processor and in the memory of an accelerator. Nothing is kept for a gradient.
    """
    shared = weight.to(h.dtype) @ h.flatten(2)
    some = max(1, _at_hand(h) // shared[0].numel())
    layers = [(c.weight[:, :, 0, 0].to(h.dtype), c.bias) for c in others]
    found = h.new_empty(*bias.shape[:2], len(layers[-1][0]), shared.shape[2])
    for one, biases, answers in zip(shared, bias.to(h.dtype), found, strict=True):
        for offset, answer in zip(biases.split(some), answers.split(some), strict=True):
            seen = one[:, None]
            for matrix, own in layers:
                seen = torch.maximum(seen, -offset.mT.contiguous()[:, :, None])
                seen = (matrix @ seen.flatten(1)).unflatten(1, (len(offset), -1))
                offset = F.linear(offset, matrix, None if own is None else own.to(h.dtype))
            torch.add(seen.transpose(0, 1), offset[:, :, None], out=answer)
    return found.unflatten(3, h.shape[-2:])


def repeat(h: Float[Tensor, "b c h w"], k: int) -> Float[Tensor, "bk c h w"]:
    """Each feature map k times in a row."""
    return h if k == 1 else h.repeat_interleave(k, dim=0)
