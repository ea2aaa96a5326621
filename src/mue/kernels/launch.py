"""The Triton kernels as functions of tensors: which kernel runs, and in blocks of which size.

| function | computes | kernel |
| --- | --- | --- |
| `conv3x3` | convolution + bias + shortcut + ReLU; also the gradient of its input | by channels |
| `conv_grad_weight` | gradients of a weight and a bias, 3x3 or 1x1 | by channels |
| `downsample` | 2x2 average pooling | `resample.downsample` |
| `relu_grad` | gradient through a ReLU whose output is used twice | `resample.relu_grad` |
| `upsample_concat`, `…_grad` | bilinear upsampling + concatenation | `resample.upsample_concat…` |

Convolutions come in two variants. With many channels (the deep levels of a U-Net, where images are
small) they are bound by arithmetic: `conv3x3.py`, an implicit matrix product. With at most 32
channels (full resolution) they are bound by memory: `conv3x3_few_channels.py` packs adjacent pixels
into one row of the matrix product, so that each pixel is loaded fewer than nine times. Its tiles
must divide the image; where they do not, the first variant is used there too.

`forward_tiles` and `grad_weight_tiles` choose the variant and its block sizes. Their numbers were
found by measuring (`benchmarks/kernels.py --tiles`) on a GPU with 132 multiprocessors; other
numbers change the speed, and the results only by the order of float32 sums.

Memory layout: images are b h w c, weights o ky kx i (PyTorch's channels_last), both in the
precision of the matrix product. Biases and gradients of weights are float32, and so are all sums.
"""

# Triton has no types, and is not installed where there is no GPU.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

import math

import torch
import triton
from torch import Tensor

from mue.kernels import resample
from mue.kernels.conv3x3 import conv3x3_forward, conv3x3_grad_weight, sum_partial_gradients
from mue.kernels.conv3x3_few_channels import (
    conv3x3_forward_few_channels,
    conv3x3_grad_weight_few_channels,
    sum_partial_gradients_few_channels,
)
from mue.kernels.plan import SHARED_KIB

Tiles = dict[str, int]
"""Block sizes and launch options of a kernel. With TILE_H, it is one for few channels."""

_BLOCKS_PER_SPLIT = 48
"""Blocks of pixels summed by one program of a weight gradient. Fewer are faster alone, but occupy
the whole GPU, and other streams wait."""


def _block_size(channels: int, limit: int) -> int:
    return min(limit, max(16, triton.next_power_of_2(channels)))


def few_channels_tile(h: int, w: int, c: int, n: int, tile_h: int, tile_w: int) -> Tiles | None:
    """Sizes for tiles of tile_h x tile_w pixels; None where these do not divide the image."""
    if h % tile_h or w % tile_w:
        return None
    k = triton.next_power_of_2((tile_w + 2) * c)
    out = triton.next_power_of_2(tile_w * n)
    group_w = math.gcd(w // tile_w, 8)
    return {
        "TILE_H": tile_h,
        "TILE_W": tile_w,
        "GROUP_H": math.gcd(h // tile_h, 64 // group_w),
        "GROUP_W": group_w,
        "BLOCK_K": max(16, k),
        "BLOCK_OUT": max(16, out),
    }


def _forward_tiles_few_channels(
    h: int, w: int, c: int, c_shortcut: int, n: int, *, has_relu_mask: bool
) -> Tiles | None:
    """Tiles of `conv3x3_forward_few_channels`; None where it does not apply."""
    if c < 4:
        tile_w = min(8 // triton.next_power_of_2(c), 128 // triton.next_power_of_2(n))
        tile = few_channels_tile(h, w, c, n, 1 if has_relu_mask else math.gcd(h, 4), tile_w)
        options = {"programs": 1056 if has_relu_mask else 264 * c, "num_stages": 1}
    else:
        two_rows = has_relu_mask or (c <= 16 and not c_shortcut)
        tile = few_channels_tile(h, w, c, n, math.gcd(h, 2) if two_rows else 1, 2)
        options = {"programs": 528, "num_stages": 1}
        if not has_relu_mask:
            options = {"programs": 132 if c > 16 or c_shortcut > 32 else 264, "num_stages": 3}
    if tile is None:
        return None
    k_shortcut = max(16, triton.next_power_of_2(c_shortcut * tile["TILE_W"]))
    tiles = tile | options | {"BLOCK_K_SHORTCUT": k_shortcut, "BLOCK_M": 64, "num_warps": 4}
    while _shared_memory_bytes(tiles, k_shortcut if c_shortcut else 0) > SHARED_KIB << 10:
        tiles["num_stages"] -= 1
    return tiles if tiles["num_stages"] else None


def _shared_memory_bytes(tiles: Tiles, k_shortcut: int) -> int:
    """Shared memory of `conv3x3_forward_few_channels`: weights, pipelined rows of x, outputs."""
    rows, m, k, out = (tiles[name] for name in ("TILE_H", "BLOCK_M", "BLOCK_K", "BLOCK_OUT"))
    pipelined = tiles["num_stages"] * ((rows + 2) * k + rows * k_shortcut) * m
    return 2 * ((3 * k + k_shortcut) * out + pipelined + m * out)


def forward_tiles(
    m: int, h: int, w: int, c: int, c_shortcut: int, n: int, *, has_relu_mask: bool
) -> Tiles:
    """Tiles of a convolution of m pixels from c to n channels.

    With TILE_H, they are those of the variant for few channels, launched as `programs` programs.
    """
    if max(c, n) <= 32 and c_shortcut <= 64:
        tiles = _forward_tiles_few_channels(h, w, c, c_shortcut, n, has_relu_mask=has_relu_mask)
        if tiles:
            return tiles
    tiles = {
        "BLOCK_M": 128,
        "BLOCK_N": _block_size(n, 64 if n % 128 else 128),
        "BLOCK_C": _block_size(c, 64),
        "BLOCK_SHORTCUT": _block_size(c_shortcut, 64),
        "num_warps": 8,
        "num_stages": 3,
    }
    if m * n <= 1 << 19:  # few outputs: smaller blocks, more programs, longer steps of the sum
        side = 32 if m <= 1 << 10 and n <= 128 else 64
        small = {"BLOCK_M": side, "BLOCK_N": _block_size(n, side), "BLOCK_C": _block_size(c, 128)}
        return tiles | small
    if triton.cdiv(m, 128) * triton.cdiv(n, tiles["BLOCK_N"]) < 132:
        return tiles | {"BLOCK_M": 64}
    return tiles


def grad_weight_tiles(m: int, h: int, w: int, c: int, n: int, kernel_size: int) -> Tiles:
    """Tiles of the gradient of a weight, and into how many `splits` its sum over m pixels goes."""
    tile = few_channels_tile(h, w, c, n, math.gcd(h, 2) if n <= 16 else 1, 2)
    if kernel_size == 3 and tile and max(c, n) <= 32:
        if c < 4 or n <= 16 < c:
            options = {"BLOCK_M": 128, "splits": 256, "num_warps": 4, "num_stages": 1}
        else:
            options = {"BLOCK_M": 64, "splits": 256, "num_warps": 4, "num_stages": 3}
            options |= {"splits": 128, "num_warps": 8} if c > 16 else {}
        limit = triton.cdiv(m, 2 * options["BLOCK_M"] * tile["TILE_H"] * tile["TILE_W"])
        return tile | options | {"splits": min(limit, options["splits"])}
    block_c, block_n, block_m = _block_size(c, 64), _block_size(n, 64), 128
    blocks = kernel_size * triton.cdiv(c, block_c) * triton.cdiv(n, block_n)
    if max(block_c, block_n) <= 32:  # more warps than 16 x 16 blocks would have nothing to do
        warps, max_warps, stages = max(block_c, block_n) // 16, 512, 1
    elif block_n <= 32 or block_c <= 32 or (blocks >= 48 and m <= 1 << 12):
        warps, max_warps, stages = 4, 132 * 8, 2
    else:
        warps, max_warps, stages = 4, 132 * 4, 3
    # A 1x1 kernel does less arithmetic with what it loads: shorter sums, more programs.
    length = _BLOCKS_PER_SPLIT if kernel_size == 3 else _BLOCKS_PER_SPLIT // 4
    splits = max(1, min(triton.cdiv(m, block_m * length), max_warps // (warps * blocks)))
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_C": block_c,
        "splits": splits,
        "num_warps": warps,
        "num_stages": stages,
    }


def conv3x3(
    x: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    shortcut: Tensor | None = None,
    shortcut_weight: Tensor | None = None,
    shortcut_bias: Tensor | None = None,
    relu_mask: Tensor | None = None,
    relu: bool = False,
    grad_input: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """A 3x3 convolution of b h w c with padding 1, and what follows it, in one kernel.

        y = [relu_mask > 0] relu(conv(x, weight) + bias + shortcut)

    Args:
        x: The input; with `grad_input`, the gradient of the output.
        weight: o ky kx i, in the precision of x.
        bias: float32, like `shortcut_bias`.
        shortcut: Added before the ReLU; with `shortcut_weight`, its 1x1 convolution is.
        shortcut_weight: o 1 1 i.
        shortcut_bias: Added with `bias`, and only with `shortcut_weight`.
        relu_mask: The output of a ReLU whose gradient this is: y is zero where it is not positive.
        relu: Whether the sum passes a ReLU.
        grad_input: Read both weights flipped and transposed: y is then the gradient of the input.
        dtype: Of y; that of x by default.
    """
    b, h, w, c = x.shape
    n = weight.shape[3] if grad_input else weight.shape[0]
    y = x.new_empty((b, h, w, n), dtype=dtype)
    m = b * h * w
    c_shortcut = 0 if shortcut is None else shortcut.shape[3]
    tiles = forward_tiles(m, h, w, c, c_shortcut, n, has_relu_mask=relu_mask is not None)
    tensors = (  # a kernel does not read those that are not given, but needs a pointer for each
        x,
        weight,
        weight if bias is None else bias,
        x if shortcut is None else shortcut,
        weight if shortcut_weight is None else shortcut_weight,
        weight if shortcut_bias is None else shortcut_bias,
        x if relu_mask is None else relu_mask,
        y,
    )
    constants = {
        "H": h,
        "W": w,
        "C": c,
        "C_SHORTCUT": max(1, c_shortcut),
        "N": n,
        "GRAD_INPUT": grad_input,
        "HAS_BIAS": bias is not None,
        "SHORTCUT": 0 if shortcut is None else 1 if shortcut_weight is None else 2,
        "RELU": relu,
        "RELU_MASK": relu_mask is not None,
    }
    if "TILE_H" in tiles:
        num_tiles = m // (tiles["TILE_H"] * tiles["TILE_W"])
        programs = min(tiles.pop("programs"), triton.cdiv(num_tiles, tiles["BLOCK_M"]))
        conv3x3_forward_few_channels[(programs,)](*tensors, num_tiles, **constants, **tiles)
    else:
        grid = (triton.cdiv(m, tiles["BLOCK_M"]), triton.cdiv(n, tiles["BLOCK_N"]))
        conv3x3_forward[grid](*tensors, m, **constants, **tiles)
    return y


def conv_grad_weight(
    x: Tensor,
    grad: Tensor,
    *,
    kernel_size: int = 3,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of the weight (o ky kx i) and the bias of a convolution, from input and output's.

    They are added to `out`, if that is given. The sum over all pixels is computed in parts by one
    kernel, and a second one adds the parts.
    """
    b, h, w, c = x.shape
    n = grad.shape[3]
    if out is None:
        weight = x.new_empty((n, kernel_size, kernel_size, c), dtype=torch.float32)
        bias = x.new_empty(n, dtype=torch.float32)
    else:
        weight, bias = out
    accumulate = out is not None
    packed = 1
    if kernel_size == 1:  # adjacent pixels, taken as one pixel with more channels, fill a block
        packed = math.gcd(w, max(1, 128 // triton.next_power_of_2(max(c, n))))
        w, c, n = w // packed, c * packed, n * packed
    m = b * h * w
    tiles = grad_weight_tiles(m, h, w, c, n, kernel_size)
    splits = tiles["splits"]
    block_splits = triton.next_power_of_2(splits)
    sum_options = {
        "BLOCK_SPLITS": block_splits,
        "BLOCK_OUT": max(8, 2048 // (block_splits * packed)),
        "num_warps": 8,
        "ACCUMULATE": accumulate,
    }
    sum_grid = (triton.cdiv(weight.numel() + len(bias), sum_options["BLOCK_OUT"]),)
    shape = {"H": h, "W": w, "C": c, "N": n}
    if "TILE_H" in tiles:
        tile_h, tile_w = tiles["TILE_H"], tiles["TILE_W"]
        partial = _partial_sums(x, splits, 3 * (tile_w + 2) * c, tile_w * n)
        conv3x3_grad_weight_few_channels[(splits,)](
            x, grad, *partial, m // (tile_h * tile_w), **shape, **tiles
        )
        sum_partial_gradients_few_channels[sum_grid](
            *partial, weight, bias, splits, C=c, N=n, TILE_W=tile_w, **sum_options
        )
        return weight, bias
    grid = (
        kernel_size * triton.cdiv(c, tiles["BLOCK_C"]),
        splits,
        triton.cdiv(n, tiles["BLOCK_N"]),
    )
    complete = splits == packed == 1  # a single part is the sum
    partial = (
        (weight, bias) if complete else _partial_sums(x, splits, kernel_size * kernel_size * c, n)
    )
    conv3x3_grad_weight[grid](
        *(x, grad, *partial, m),
        **shape,
        KERNEL_SIZE=kernel_size,
        ACCUMULATE=accumulate and complete,
        **tiles,
    )
    if not complete:
        size = weight.numel() // len(bias)
        sum_partial_gradients[sum_grid](
            *partial, weight, bias, splits, C=size, N=len(bias), PACKED=packed, **sum_options
        )
    return weight, bias


def _partial_sums(like: Tensor, splits: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Memory for the parts of the gradients of a weight and its bias."""
    return (
        like.new_empty(splits * inputs * outputs, dtype=torch.float32),
        like.new_empty(splits * outputs, dtype=torch.float32),
    )


def downsample(x: Tensor) -> Tensor:
    """2x2 average pooling of b h w c; the last row or column of an odd side is repeated."""
    b, h, w, c = x.shape
    y = x.new_empty((b, -(-h // 2), -(-w // 2), c))
    m = y.numel() // c
    tiles = _resample_tiles(h, w, c)
    resample.downsample[(triton.cdiv(m, tiles["BLOCK_M"]),)](x, y, m, **tiles)
    return y


def relu_grad(x: Tensor, grad: Tensor | None, grad_reduced: Tensor | None) -> Tensor:
    """The gradient of the input of a ReLU with output x.

    Args:
        x: b h w c.
        grad: The gradient of x itself; it may be a slice of the channels of a larger tensor.
        grad_reduced: The gradient of `downsample(x)`, b h w c, or of the mean over pixels, b c.
    """
    dx = torch.empty_like(x)
    _, h, w, c = x.shape
    m = x.numel() // c
    tiles = _resample_tiles(h, w, c) | {
        "GRAD_STRIDE": 0 if grad is None else c if grad.is_contiguous() else grad.stride(2),
        "REDUCED": 0 if grad_reduced is None else 1 if grad_reduced.ndim == 4 else 2,
    }
    grads = (x if g is None else g for g in (grad, grad_reduced))
    resample.relu_grad[(triton.cdiv(m, tiles["BLOCK_M"]),)](x, *grads, dx, m, **tiles)
    return dx


def upsample_concat(x: Tensor, skip: Tensor) -> Tensor:
    """X upsampled by 2 (bilinear), with the channels of the skip connection after its own."""
    b, h, w, c = x.shape
    c_skip = skip.shape[3]
    y = x.new_empty((b, 2 * h, 2 * w, c + c_skip))
    tiles = _resample_tiles(h, w, c, c_skip)
    m = 4 * b * h * w
    resample.upsample_concat[(triton.cdiv(m, tiles["BLOCK_M"]),)](x, skip, y, m, **tiles)
    return y


def upsample_concat_grad(grad: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """The gradients of both inputs of `upsample_concat`, of which the first has `channels`."""
    b, h, w, c_both = grad.shape
    h, w, c_skip = h // 2, w // 2, c_both - channels
    dx, dskip = grad.new_empty((b, h, w, channels)), grad.new_empty((b, 2 * h, 2 * w, c_skip))
    tiles = _resample_tiles(h, w, channels, c_skip)
    m = b * h * w
    resample.upsample_concat_grad[(triton.cdiv(m, tiles["BLOCK_M"]),)](grad, dx, dskip, m, **tiles)
    return dx, dskip


def _resample_tiles(h: int, w: int, c: int, c_skip: int | None = None) -> Tiles:
    """Sizes of a resampling kernel: as many pixels to a program as make about 2048 values."""
    pixels = max(8, 2048 // triton.next_power_of_2(max(c, c_skip or 0)))
    tiles = {"H": h, "W": w, "C": c, "BLOCK_M": pixels, "BLOCK_C": _block_size(c, 4096)}
    if c_skip is None:
        return tiles
    return tiles | {"C_SKIP": c_skip, "BLOCK_SKIP": _block_size(c_skip, 4096)}
