"""Large images: a U-Net computed in strips of rows, with the result of one pass over the image.

A convolution reads one row more on either side, so a strip with these two rows gives exactly the
rows of the whole. Only group normalization and the pooled vector need all of the image: their sums
are added up over the strips of a layer before the next one reads it. So nothing is blended, there
is no seam, and a code means the same everywhere. What must be kept of the whole image are the
feature maps of the skip connections and the one at work; everything else is a few rows high. In
very large images these maps and the answers are kept in half precision, though not computed in it:
that moves the probability of a pixel by up to 1e-3, and with it those pixels of a mask that are as
close as that to one half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mue.models.modal import Modal, View
from mue.nn.backbone import Features
from mue.nn.blocks import ResidualBlock, downsample, pad_to_multiple, upsample
from mue.nn.unet import UNetDecoder, UNetEncoder

Rows = Callable[[int, int], Tensor]
"""Rows a to b - 1 of a feature map: 1 c b-a w."""
LARGE, LARGE_CUDA = 1 << 21, 1 << 24
"""Pixels of an image from which on it is computed in strips, on a CPU and on a GPU."""
HALF = 1 << 23
"""Pixels from which on feature maps and answers are kept in half precision."""
_STRIP = 1 << 19
"""Elements of the widest layer in a strip, so that they stay in the cache of a CPU."""
_MAX = torch.finfo(torch.float16).max


def is_large(network: nn.Module, x: Tensor) -> bool:
    """Whether strips are needed, and known: for a U-Net of ours whose prior reads no answers."""
    return (
        isinstance(network, Modal)
        and isinstance(network.encoder, UNetEncoder)
        and isinstance(network.decoder, UNetDecoder)
        and network.score is None
        and x.shape[-1] * x.shape[-2] > (LARGE_CUDA if x.is_cuda else LARGE)
    )


def view(network: Modal, x: Float[Tensor, "1 c h w"]) -> View:
    """What the network makes of a large image, before any answer."""
    features = encode(cast("UNetEncoder", network.encoder), x)
    return View(features, network.prior(features.pooled).float().log_softmax(dim=1))


def answers(
    network: Modal,
    view: View,
    codes: Float[Tensor, "1 k d"],
    values: Callable[[Float[Tensor, "1 k c h w"]], Float[Tensor, "1 k c h w"]],
) -> Float[Tensor, "1 k c h w"]:
    """The answers to a large image, of logits that are turned into `values`."""
    y: Tensor | None = None

    def put(at: slice, rows: slice, logits: Tensor) -> None:
        nonlocal y
        if y is None:
            shape = (1, codes.shape[1], logits.shape[2], *view.features.size)
            kept = view.features.levels[0].dtype
            y = torch.empty(shape, dtype=kept, device=logits.device)
        y[:, at, :, rows] = values(logits.float())

    decode(cast("UNetDecoder", network.decoder), view.features, codes, put)
    return cast("Tensor", y)


def strips(height: int, elements: int) -> Iterator[tuple[int, int]]:
    """First row of each strip, and of the next, where a row has so many elements."""
    rows = max(8, _STRIP // elements)
    return ((a, min(a + rows, height)) for a in range(0, height, rows))


def encode(encoder: UNetEncoder, x: Float[Tensor, "1 c h w"]) -> Features:
    """What the encoder makes of an image."""
    kept = torch.float16 if x.shape[2] * x.shape[3] > HALF else torch.float32
    h, levels = pad_to_multiple(x, encoder.stride), list[Tensor]()
    for i, block in enumerate(encoder.blocks):
        h = downsample(h) if i else h
        h = _block(cast("ResidualBlock", block), _rows(h, x.dtype), h.shape[2:], kept)
        if i < encoder.depth:
            levels.append(h)
    return Features(tuple(levels), h.to(x.dtype).mean(dim=(2, 3)), tuple(x.shape[-2:]))


def decode(
    decoder: UNetDecoder,
    features: Features,
    codes: Float[Tensor, "1 k d"],
    put: Callable[[slice, slice, Tensor], None],
) -> None:
    """Call `put(codes, rows, logits)` until all rows of the answers to all codes are known."""
    (height, width), skips = features.size, [None, *features.levels[-2::-1]]
    h, stages = features.levels[-1], [cast("ResidualBlock", stage) for stage in decoder.stages]
    before, join = decoder.level - 1, decoder.join
    for block, skip in zip(stages[:before], skips, strict=False):
        h = _stage(block, h, skip, codes.dtype)
    if decoder.late:
        for a, b in strips(height, width * codes.shape[1]):
            part = h[:, :, a:b, :width].to(codes.dtype)
            put(slice(None), slice(a, b), decoder.readout(part, join, codes))
        return
    for j, code in enumerate(codes.split(1, dim=1)):
        own = h
        for i in range(before, len(stages)):
            enter = (lambda rows, code=code: join(rows, code)) if i == before else None
            own = _stage(stages[i], own, skips[i], codes.dtype, enter)
        for a, b in strips(height, width):
            put(slice(j, j + 1), slice(a, b), own[:, None, :, a:b, :width])


def _stage(
    block: ResidualBlock,
    h: Tensor,
    skip: Tensor | None,
    dtype: torch.dtype,
    enter: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """A stage of the decoder, into which a code may `enter`. Its input is made strip by strip."""
    lower_rows, skip_rows = _rows(h, dtype), None if skip is None else _rows(skip, dtype)

    def read(a: int, b: int) -> Tensor:
        if skip_rows is None:
            rows = lower_rows(a, b)
        else:
            first, last = max(a // 2 - 1, 0), min((b + 3) // 2, h.shape[2])
            up = upsample(lower_rows(first, last))[:, :, a - 2 * first : b - 2 * first]
            rows = torch.cat([up, skip_rows(a, b)], dim=1)
        return rows if enter is None else enter(rows)

    return _block(block, read, (h if skip is None else skip).shape[2:], h.dtype)


def _block(block: ResidualBlock, read: Rows, size: Sequence[int], kept: torch.dtype) -> Tensor:
    """The output of a residual block, of whose input `read` gives rows.

    Each layer is written over the one before, in the precision `kept`.
    """
    rows, h = read, None
    for i in (0, 3, 6):
        conv, norm = cast("nn.Conv2d", block.body[i]), block.body[i + 1]
        if h is None or h.shape[1] != conv.out_channels:
            shape = (1, conv.out_channels, *size)
            h = torch.empty(shape, dtype=kept, device=conv.weight.device)
        affine = _convolve(conv, norm, rows, h)
        rows = _rows(h, conv.weight.dtype, affine, relu=i < 6)
    h = cast("Tensor", h)
    for a, b in strips(size[0], size[1] * h.shape[1]):
        h[:, :, a:b] = block.out(rows(a, b) + block.shortcut(read(a, b))).clamp_(-_MAX, _MAX)
    return h


def _rows(
    h: Tensor,
    dtype: torch.dtype,
    affine: tuple[Tensor, Tensor] | None = None,
    *,
    relu: bool = False,
) -> Rows:
    """Reads rows of a feature map, each channel scaled and shifted, then its positive part."""

    def read(a: int, b: int) -> Tensor:
        rows = h[:, :, a:b].to(dtype)
        if affine is not None:
            rows = torch.addcmul(affine[1], rows, affine[0])
        return rows.relu() if relu else rows

    return read


def _convolve(
    conv: nn.Conv2d, norm: nn.Module, read: Rows, out: Float[Tensor, "1 c h w"]
) -> tuple[Tensor, Tensor] | None:
    """Write a 3x3 convolution of the rows to `out`, which they may be read from.

    Returns the scale and the shift of each channel by which group normalization follows.
    """
    c, height, width = out.shape[1:]
    grouped = isinstance(norm, nn.GroupNorm)
    total = torch.zeros(2, c, dtype=torch.double, device=out.device)
    above: Tensor | None = None
    for a, b in strips(height, width * max(conv.in_channels, c)):
        rows = read(a, min(b + 1, height))
        zero = torch.zeros_like(rows[:, :, :1])
        halo = [zero if above is None else above, rows, *([zero] if b == height else [])]
        above = rows[:, :, b - a - 1 : b - a].clone()
        y = F.conv2d(torch.cat(halo, dim=2), conv.weight, conv.bias, padding=(0, 1))
        if grouped:
            values = y.float()
            total += torch.stack([v.sum(dim=(0, 2, 3)) for v in (values, values.square())])
        out[:, :, a:b] = y.clamp_(-_MAX, _MAX)
    if not grouped:
        return None
    moments = total.unflatten(1, (norm.num_groups, -1)).mean(dim=2) / (height * width)
    mean, square = moments.repeat_interleave(c // norm.num_groups, dim=1)
    scale = norm.weight / (square - mean.square() + norm.eps).sqrt()
    shift = norm.bias - mean * scale
    return scale.to(conv.weight.dtype)[:, None, None], shift.to(conv.weight.dtype)[:, None, None]
