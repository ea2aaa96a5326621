"""Resampling between the levels of a U-Net, fused with what stands next to it, in Triton.

All of this is bound by memory: what is fused saves one round trip of the whole image.

Downsampling is 2x2 average pooling; the last row or column of an odd side is repeated. Upsampling
is bilinear by 2 (`align_corners=False`): along each axis an output pixel is 3/4 of the input pixel
that contains it and 1/4 of the nearest neighbour, which at the border is that pixel itself.

Memory layout: b h w c. A program computes BLOCK_M pixels, all channels of each.
"""

# Triton has no types, and is not installed where there is no GPU.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def downsample(
    x,
    y,
    num_pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Set y to x downsampled by 2. H and W are those of x, m counts pixels of y."""
    H_HALF: tl.constexpr = (H + 1) // 2
    W_HALF: tl.constexpr = (W + 1) // 2
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = m % W_HALF
    batch_row = m // W_HALF
    image = batch_row // H_HALF * H
    top = (image + 2 * (batch_row % H_HALF)) * W
    bottom = (image + tl.minimum(2 * (batch_row % H_HALF) + 1, H - 1)) * W
    left = 2 * column
    right = tl.minimum(2 * column + 1, W - 1)
    c = tl.arange(0, BLOCK_C)[None, :]
    valid = (m < num_pixels)[:, None] & (c < C)
    acc = tl.load(x + ((top + left) * C)[:, None] + c, mask=valid, other=0.0).to(tl.float32)
    acc += tl.load(x + ((top + right) * C)[:, None] + c, mask=valid, other=0.0).to(tl.float32)
    acc += tl.load(x + ((bottom + left) * C)[:, None] + c, mask=valid, other=0.0).to(tl.float32)
    acc += tl.load(x + ((bottom + right) * C)[:, None] + c, mask=valid, other=0.0).to(tl.float32)
    tl.store(y + (m * C)[:, None] + c, (0.25 * acc).to(y.dtype.element_ty), mask=valid)


@triton.jit
@no_type_check
def relu_grad(
    x,
    grad,
    grad_reduced,
    dx,
    num_pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    GRAD_STRIDE: tl.constexpr,
    REDUCED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """The gradient of the input of a ReLU with output x, from the gradients of all uses of x.

        dx = [x > 0] (grad + backward of the reduction of grad_reduced)

    GRAD_STRIDE is the stride of a pixel in `grad`, 0 where there is none: `grad` may be a slice of
    the channels of a larger tensor. REDUCED says what else x was used for: 0 nothing, 1 it was
    downsampled, 2 it was averaged over the pixels of each image.
    """
    H_HALF: tl.constexpr = (H + 1) // 2
    W_HALF: tl.constexpr = (W + 1) // 2
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = m % W
    batch_row = m // W
    row = batch_row % H
    c = tl.arange(0, BLOCK_C)[None, :]
    valid = (m < num_pixels)[:, None] & (c < C)
    offsets = (m * C)[:, None] + c
    acc = tl.zeros((BLOCK_M, BLOCK_C), dtype=tl.float32)
    if REDUCED == 1:
        reduced = ((batch_row // H * H_HALF + row // 2) * W_HALF + column // 2) * C
        factor = tl.full((BLOCK_M,), 0.25, dtype=tl.float32)
        if H % 2 == 1:  # the last row was counted twice
            factor = tl.where(row == H - 1, 2 * factor, factor)
        if W % 2 == 1:
            factor = tl.where(column == W - 1, 2 * factor, factor)
        g = tl.load(grad_reduced + reduced[:, None] + c, mask=valid, other=0.0)
        acc += factor[:, None] * g.to(tl.float32)
    if REDUCED == 2:
        g = tl.load(grad_reduced + (batch_row // H * C)[:, None] + c, mask=valid, other=0.0)
        acc += g.to(tl.float32) * (1 / (H * W))
    if GRAD_STRIDE:
        acc += tl.load(grad + (m * GRAD_STRIDE)[:, None] + c, mask=valid, other=0.0).to(tl.float32)
    acc = tl.where(tl.load(x + offsets, mask=valid, other=0.0) > 0, acc, 0.0)
    tl.store(dx + offsets, acc.to(dx.dtype.element_ty), mask=valid)


@triton.jit
@no_type_check
def upsample_concat(
    x,
    skip,
    y,
    num_pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    C_SKIP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_SKIP: tl.constexpr,
):
    """Set y to x upsampled by 2, with the channels of `skip` after its own.

    H and W are those of x, m counts pixels of y.
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    m_valid = m < num_pixels
    column = m % (2 * W)
    batch_row = m // (2 * W)
    row = batch_row % (2 * H)
    image = batch_row // (2 * H) * H
    i = row // 2
    j = column // 2
    i_next = tl.minimum(tl.maximum(i + row % 2 * 2 - 1, 0), H - 1)
    j_next = tl.minimum(tl.maximum(j + column % 2 * 2 - 1, 0), W - 1)
    c = tl.arange(0, BLOCK_C)[None, :]
    valid = m_valid[:, None] & (c < C)
    line = (image + i) * W
    line_next = (image + i_next) * W
    x_00 = tl.load(x + ((line + j) * C)[:, None] + c, mask=valid, other=0.0).to(tl.float32)
    x_01 = tl.load(x + ((line + j_next) * C)[:, None] + c, mask=valid, other=0.0).to(tl.float32)
    x_10 = tl.load(x + ((line_next + j) * C)[:, None] + c, mask=valid, other=0.0).to(tl.float32)
    x_11 = tl.load(x + ((line_next + j_next) * C)[:, None] + c, mask=valid, other=0.0).to(
        tl.float32
    )
    value = 0.75 * (0.75 * x_00 + 0.25 * x_01) + 0.25 * (0.75 * x_10 + 0.25 * x_11)
    tl.store(y + (m * (C + C_SKIP))[:, None] + c, value.to(y.dtype.element_ty), mask=valid)
    c_skip = tl.arange(0, BLOCK_SKIP)[None, :]
    skip_valid = m_valid[:, None] & (c_skip < C_SKIP)
    copied = tl.load(skip + (m * C_SKIP)[:, None] + c_skip, mask=skip_valid, other=0.0)
    tl.store(y + (m * (C + C_SKIP) + C)[:, None] + c_skip, copied, mask=skip_valid)


@triton.jit
@no_type_check
def upsample_concat_grad(
    grad,
    dx,
    dskip,
    num_pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    C_SKIP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_SKIP: tl.constexpr,
):
    """The gradients of both inputs of `upsample_concat`; m counts pixels of x.

    A pixel of x has a part in 4 x 4 pixels of y; of `skip`, 2 x 2 pixels are copied.
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    m_valid = m < num_pixels
    column = m % W
    batch_row = m // W
    row = batch_row % H
    image = batch_row // H * (2 * H)
    c = tl.arange(0, BLOCK_C)[None, :]
    valid = m_valid[:, None] & (c < C)
    acc = tl.zeros((BLOCK_M, BLOCK_C), dtype=tl.float32)
    for i in tl.static_range(4):
        y_row = image + tl.minimum(tl.maximum(2 * row + i - 1, 0), 2 * H - 1)
        for j in tl.static_range(4):
            y_column = tl.minimum(tl.maximum(2 * column + j - 1, 0), 2 * W - 1)
            y_pixel = (y_row * (2 * W) + y_column) * (C + C_SKIP)
            factor = (0.75 if i % 3 else 0.25) * (0.75 if j % 3 else 0.25)
            acc += factor * tl.load(grad + y_pixel[:, None] + c, mask=valid, other=0.0).to(
                tl.float32
            )
    tl.store(dx + (m * C)[:, None] + c, acc.to(dx.dtype.element_ty), mask=valid)
    c_skip = tl.arange(0, BLOCK_SKIP)[None, :]
    skip_valid = m_valid[:, None] & (c_skip < C_SKIP)
    for q in tl.static_range(4):
        pixel = (image + 2 * row + q // 2) * (2 * W) + 2 * column + q % 2
        g = tl.load(grad + (pixel * (C + C_SKIP) + C)[:, None] + c_skip, mask=skip_valid, other=0.0)
        tl.store(dskip + (pixel * C_SKIP)[:, None] + c_skip, g, mask=skip_valid)
