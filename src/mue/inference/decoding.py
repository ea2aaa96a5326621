"""Decoders for inference: the answers of many codes with little memory, without gradients.

A network in training keeps everything for the backward pass. Inference need not: what the codes of
an input have in common is computed once, and codes and pixels are taken a few at a time, so that
activations stay in the cache of a processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mue.nn.backbone import Features
from mue.nn.blocks import ResidualBlock, upsample
from mue.nn.replace import replace_modules
from mue.nn.unet import Join, Readout, UNetDecoder, first_layer

_CODES_CHUNK = 1 << 20
"""Elements of the finest feature map, over all codes of a chunk, that fit in a CPU's cache."""

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def for_inference(network: AnyModule) -> AnyModule:
    """A copy of a network with decoders for inference, which shares its weights."""

    def replacement(module: nn.Module) -> nn.Module | None:
        match module:
            case ChunkedReadout() | CodewiseDecoder() | InPlaceBlock():
                return None
            case Readout():
                return ChunkedReadout(module)
            case UNetDecoder():
                return CodewiseDecoder(module)
            case ResidualBlock():
                return InPlaceBlock(module)
        return None

    return cast("AnyModule", replace_modules(network, replacement))


class InPlaceBlock(ResidualBlock):
    """A `ResidualBlock` that overwrites what it has made itself."""

    def __init__(self, block: ResidualBlock) -> None:
        nn.Module.__init__(self)
        self.body, self.shortcut, self.out = block.body, block.shortcut, block.out
        self.linear = block.linear

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h w"]:
        """The block's output, of the same height and width."""
        return _finished(self, self.body[0](x), self.shortcut(x))


def _finished(block: ResidualBlock, h: Tensor, shortcut: Tensor) -> Tensor:
    """The output of a block from that of its first convolution, which is overwritten."""
    for layer in list(block.body)[1:]:
        h = h.relu_() if isinstance(layer, nn.ReLU) else layer(h)
    h = h.add_(shortcut) if h.dtype == shortcut.dtype else h + shortcut
    return h if block.linear else h.relu_()


def _readout_chunk(h: Tensor) -> int:
    """Elements between two layers: what fits in the cache of a CPU, or in the memory of a GPU."""
    return 1 << 26 if h.is_cuda else 1 << 18


class ChunkedReadout(Readout):
    """A `Readout` that takes a few pixels, or a few codes, at a time."""

    def __init__(self, readout: Readout) -> None:
        nn.ModuleList.__init__(self, list(readout))

    def forward(
        self, h: Float[Tensor, "b c h w"], join: Join, codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "b k c2 h w"]:
        """Logits of the answer to each code."""
        first, *others = self.convs
        weight, bias = join.fold(first, codes)
        if weight.shape[1] < codes.shape[1]:  # one for all codes
            return _shared_weight_readout(h, weight[:, 0], bias, others)
        chunk = max(1, _readout_chunk(h) // bias.numel())
        chunks: list[Tensor] = []
        for pixels in h.flatten(2).mT.split(chunk, dim=1):
            logits = first_layer(pixels, weight, bias)
            for conv in others:
                logits = self.conv1x1(logits.relu_(), conv)
            chunks.append(logits.permute(0, 2, 3, 1))
        whole = chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=3)
        return whole.unflatten(3, h.shape[-2:])


def _shared_weight_readout(
    h: Float[Tensor, "b c h w"],
    weight: Float[Tensor, "b o c"],
    bias: Float[Tensor, "b k o"],
    others: Sequence[nn.Conv2d],
) -> Float[Tensor, "b k c2 h w"]:
    """A readout for thousands of codes, where only the bias of the first layer depends on them.

    relu(a + bias) = max(a, -bias) + bias is one pass over the pixels, and the bias that is added
    is the same for all of them, so it goes through the next layer's own bias.
    """
    shared = weight.to(h.dtype) @ h.flatten(2)
    chunk = max(1, _readout_chunk(h) // shared[0].numel())
    layers = [(c.weight[:, :, 0, 0].to(h.dtype), c.bias) for c in others]
    logits = h.new_empty(*bias.shape[:2], len(layers[-1][0]), shared.shape[2])
    for pixels, biases, outputs in zip(shared, bias.to(h.dtype), logits, strict=True):
        for offset, out in zip(biases.split(chunk), outputs.split(chunk), strict=True):
            hidden = pixels[:, None]
            for matrix, own in layers:
                hidden = torch.maximum(hidden, -offset.mT.contiguous()[:, :, None])
                hidden = (matrix @ hidden.flatten(1)).unflatten(1, (len(offset), -1))
                offset = F.linear(offset, matrix, None if own is None else own.to(h.dtype))
            torch.add(hidden.transpose(0, 1), offset[:, :, None], out=out)
    return logits.unflatten(3, h.shape[-2:])


@dataclass(frozen=True, slots=True)
class SkipContribution:
    """What the two linear maps of a residual block make of the channels of a skip connection.

    Both are linear, so what they make of some input channels can be computed once and added.

    Attributes:
        conv: Of the first convolution, with its bias.
        shortcut: Of the shortcut, with its bias.
    """

    conv: Float[Tensor, "b c h w"]
    shortcut: Float[Tensor, "b c2 h w"]

    @classmethod
    def of(cls, block: ResidualBlock, skip: Float[Tensor, "b c h w"]) -> SkipContribution | None:
        """That of the last input channels; None where the shortcut is no convolution."""
        first, shortcut = cast("nn.Conv2d", block.body[0]), block.shortcut
        if not isinstance(shortcut, nn.Conv2d):
            return None
        c = skip.shape[1]
        return cls(
            F.conv2d(skip, first.weight[:, -c:], first.bias, padding=1),
            F.conv2d(skip, shortcut.weight[:, -c:], shortcut.bias),
        )

    def __getitem__(self, rows: slice) -> SkipContribution:
        """That of some inputs of the batch."""
        return SkipContribution(self.conv[rows], self.shortcut[rows])

    def add(self, block: ResidualBlock, x: Float[Tensor, "k c h w"]) -> Float[Tensor, "k c2 h w"]:
        """The output of the block for the first channels x followed by those of the skip."""
        first = cast("nn.Conv2d", block.body[0])
        shortcut = cast("nn.Conv2d", block.shortcut)
        c = x.shape[1]
        h = F.conv2d(x, first.weight[:, :c], None, padding=1).add_(self.conv)
        return _finished(block, h, F.conv2d(x, shortcut.weight[:, :c]).add_(self.shortcut))


class CodewiseDecoder(UNetDecoder):
    """A U-Net decoder that takes a few codes at a time and computes once what they share.

    They share the stages before the code enters, and in later stages what the first convolution
    makes of the encoder's features. A few, so that their feature maps stay in the cache of a CPU;
    a GPU takes all of them.
    """

    def __init__(self, decoder: UNetDecoder) -> None:
        nn.Module.__init__(self)
        self.level, self.late, self.dropout = decoder.level, decoder.late, decoder.dropout
        self.stages, self.join, self.up = decoder.stages, decoder.join, decoder.up
        if decoder.late:
            self.readout = decoder.readout

    def forward(
        self, features: Features, codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "b k c h w"]:
        """Logits of the answer to each code, of the size the encoder was given."""
        if self.late or codes.shape[1] == 1:
            return super().forward(features, codes)
        shared, skips = features.levels[-1], features.levels[::-1]
        blocks = [cast("ResidualBlock", stage) for stage in self.stages]
        for i in range(1, self.level):
            shared = blocks[i - 1](self.stage_input(i, shared, skips))
        of_skips = [SkipContribution.of(b, s) for b, s in zip(blocks[1:], skips[1:], strict=True)]
        chunk = codes.shape[1] if shared.is_cuda else max(1, _CODES_CHUNK // skips[-1][0].numel())
        found: list[Tensor] = []
        for row in range(len(codes)):
            rows = slice(row, row + 1)
            own_skips = [s[rows] for s in skips]
            for part in codes[rows].split(chunk, dim=1):
                level = self.level
                h = self.join(self.stage_input(level, shared[rows], own_skips), part)
                h = blocks[level - 1](h)
                for i in range(level + 1, len(blocks) + 1):
                    of_skip = of_skips[i - 2]
                    if of_skip is None:
                        h = blocks[i - 1](self.stage_input(i, h, own_skips))
                    else:
                        h = of_skip[rows].add(blocks[i - 1], upsample(h))
                found.append(h)
        height, width = features.size
        return torch.cat(found).unflatten(0, codes.shape[:2])[..., :height, :width]
