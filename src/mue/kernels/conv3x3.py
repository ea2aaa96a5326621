"""3x3 convolutions and their gradients in Triton, as implicit matrix products.

A convolution is the product of a matrix of image patches, pixels x (9 C), with the weights,
(9 C) x N. The patches are never written to memory: a loop over the nine positions of the kernel
loads the pixels shifted by each ("implicit GEMM"). With many channels, every loaded value takes
part in enough multiplications to keep the tensor cores busy. With at most 32, loading each pixel
nine times dominates, and the kernels of `conv3x3_few_channels` are used where they apply.

Memory layout: images are b h w c, weights o ky kx i (PyTorch's channels_last), both in the
precision of the matrix product; sums are float32. C and N are the input and output channels, m
counts pixels, BLOCK_* are the sizes of the block that one program computes.
"""

# Triton has no types, and is not installed where there is no GPU.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def conv3x3_forward(
    x,
    weight,
    bias,
    shortcut,
    shortcut_weight,
    shortcut_bias,
    relu_mask,
    y,
    num_pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    C_SHORTCUT: tl.constexpr,
    N: tl.constexpr,
    GRAD_INPUT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SHORTCUT: tl.constexpr,
    RELU: tl.constexpr,
    RELU_MASK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_SHORTCUT: tl.constexpr,
):
    """A 3x3 convolution with padding 1, and what follows it in a residual block.

        y = [relu_mask > 0] relu(conv(x, weight) + bias + shortcut)

    Each part after the convolution is optional. SHORTCUT is 0 without one, 1 to add `shortcut` as
    it is, 2 to add its 1x1 convolution. `relu_mask` is the output of a ReLU, through which a
    gradient passes only where that output is positive.

    GRAD_INPUT reads the weights flipped along ky and kx, with i and o exchanged: the convolution of
    the gradient of the output is then the gradient of the input.
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_valid = m < num_pixels
    column = m % W
    row = (m // W) % H
    n_valid = n < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    channel_blocks: tl.constexpr = (C + BLOCK_C - 1) // BLOCK_C
    for step in range(9 * channel_blocks):
        position = step // channel_blocks  # ky * 3 + kx
        c = (step % channel_blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
        dy = position // 3 - 1
        dx = position % 3 - 1
        in_image = (
            m_valid & (row + dy >= 0) & (row + dy < H) & (column + dx >= 0) & (column + dx < W)
        )
        x_ptrs = x + (m + dy * W + dx)[:, None] * C + c[None, :]
        if C % BLOCK_C == 0:
            a = tl.load(x_ptrs, mask=in_image[:, None], other=0.0)
        else:
            x_valid = in_image[:, None] & (c < C)[None, :]
            a = tl.load(x_ptrs, mask=x_valid, other=0.0)
        if GRAD_INPUT:
            w_ptrs = weight + c[:, None] * (9 * N) + (8 - position) * N + n[None, :]
        else:
            w_ptrs = weight + n[None, :] * (9 * C) + position * C + c[:, None]
        if C % BLOCK_C == 0 and N % BLOCK_N == 0:
            b = tl.load(w_ptrs)
        else:
            b = tl.load(w_ptrs, mask=(c < C)[:, None] & n_valid[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    if SHORTCUT == 2:
        for step in range((C_SHORTCUT + BLOCK_SHORTCUT - 1) // BLOCK_SHORTCUT):
            c = step * BLOCK_SHORTCUT + tl.arange(0, BLOCK_SHORTCUT)
            a = tl.load(
                shortcut + m[:, None] * C_SHORTCUT + c[None, :],
                mask=m_valid[:, None] & (c < C_SHORTCUT)[None, :],
                other=0.0,
            )
            if GRAD_INPUT:
                w_ptrs = shortcut_weight + c[:, None] * N + n[None, :]
            else:
                w_ptrs = shortcut_weight + n[None, :] * C_SHORTCUT + c[:, None]
            b = tl.load(w_ptrs, mask=(c < C_SHORTCUT)[:, None] & n_valid[None, :], other=0.0)
            acc = tl.dot(a, b, acc)
    y_offsets = m[:, None] * N + n[None, :]
    y_valid = m_valid[:, None] & n_valid[None, :]
    if SHORTCUT == 1:
        acc += tl.load(shortcut + y_offsets, mask=y_valid, other=0.0).to(tl.float32)
    if HAS_BIAS:
        acc += tl.load(bias + n, mask=n_valid, other=0.0)[None, :]
        if SHORTCUT == 2:
            acc += tl.load(shortcut_bias + n, mask=n_valid, other=0.0)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    if RELU_MASK:
        acc = tl.where(tl.load(relu_mask + y_offsets, mask=y_valid, other=0.0) > 0, acc, 0.0)
    tl.store(y + y_offsets, acc.to(y.dtype.element_ty), mask=y_valid)


@triton.jit
@no_type_check
def conv3x3_grad_weight(
    x,
    grad,
    grad_weight,
    grad_bias,
    num_pixels,
    splits,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    N: tl.constexpr,
    KERNEL_SIZE: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Partial sums of the gradients of weight and bias, of a 3x3 or a 1x1 convolution.

        grad_weight[split, n, ky, kx, c] = sum_m grad[m, n] x[m shifted by (ky, kx), c]
        grad_bias[split, n] = sum_m grad[m, n]

    The weight is small and the sum over pixels long, so that the pixels are divided into `splits`
    ("split-K"): programs enough for the whole GPU. `sum_partial_gradients` adds the splits. A
    program computes one row ky of the kernel. ACCUMULATE, for a single split, adds to the values
    that are there.
    """
    split = tl.program_id(1)
    channel_blocks: tl.constexpr = (C + BLOCK_C - 1) // BLOCK_C
    ky = tl.program_id(0) // channel_blocks
    c = (tl.program_id(0) % channel_blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    n = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)
    c_valid = c < C
    n_valid = n < N
    left = tl.zeros((BLOCK_C, BLOCK_N), dtype=tl.float32)
    center = tl.zeros((BLOCK_C, BLOCK_N), dtype=tl.float32)
    right = tl.zeros((BLOCK_C, BLOCK_N), dtype=tl.float32)
    bias_sum = tl.zeros((BLOCK_N,), dtype=tl.float32)
    dy = ky - 1 if KERNEL_SIZE == 3 else 0
    for start in range(split * BLOCK_M, num_pixels, splits * BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        m_valid = m < num_pixels
        column = m % W
        row = (m // W) % H
        g = tl.load(
            grad + m[:, None] * N + n[None, :], mask=m_valid[:, None] & n_valid[None, :], other=0.0
        )
        in_image = m_valid & (row + dy >= 0) & (row + dy < H)
        x_ptrs = x + (m + dy * W)[:, None] * C + c[None, :]
        x_valid = in_image[:, None] & c_valid[None, :]
        a = tl.load(x_ptrs, mask=x_valid, other=0.0)
        center = tl.dot(tl.trans(a), g, center)
        if KERNEL_SIZE == 3:
            a = tl.load(x_ptrs - C, mask=x_valid & (column > 0)[:, None], other=0.0)
            left = tl.dot(tl.trans(a), g, left)
            x_valid = x_valid & (column < W - 1)[:, None]
            a = tl.load(x_ptrs + C, mask=x_valid, other=0.0)
            right = tl.dot(tl.trans(a), g, right)
        bias_sum += tl.sum(g.to(tl.float32), axis=0)
    valid = c_valid[:, None] & n_valid[None, :]
    if KERNEL_SIZE == 3:
        out_ptrs = grad_weight + ((split * N + n[None, :]) * 9 + ky * 3) * C + c[:, None]
        if ACCUMULATE:
            left += tl.load(out_ptrs, mask=valid, other=0.0)
            center += tl.load(out_ptrs + C, mask=valid, other=0.0)
            right += tl.load(out_ptrs + 2 * C, mask=valid, other=0.0)
        tl.store(out_ptrs, left, mask=valid)
        tl.store(out_ptrs + C, center, mask=valid)
        tl.store(out_ptrs + 2 * C, right, mask=valid)
    else:
        out_ptrs = grad_weight + (split * N + n[None, :]) * C + c[:, None]
        if ACCUMULATE:
            center += tl.load(out_ptrs, mask=valid, other=0.0)
        tl.store(out_ptrs, center, mask=valid)
    if tl.program_id(0) == 0:
        if ACCUMULATE:
            bias_sum += tl.load(grad_bias + split * N + n, mask=n_valid, other=0.0)
        tl.store(grad_bias + split * N + n, bias_sum, mask=n_valid)


@triton.jit
@no_type_check
def sum_partial_gradients(
    partial_weight,
    partial_bias,
    grad_weight,
    grad_bias,
    splits,
    C: tl.constexpr,
    N: tl.constexpr,
    PACKED: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
):
    """The sum over all splits of `conv3x3_grad_weight`: the gradients of the weight, n c, and bias.

    C counts all weights of an output channel. ACCUMULATE adds to the values that are there. For a
    1x1 convolution, PACKED adjacent pixels may have been taken as one pixel with PACKED times the
    channels; the gradient is then the sum of the diagonal ones of PACKED x PACKED blocks.
    """
    # The weight's gradients come first, then the bias's: out counts both.
    out = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    n = tl.where(out < N * C, out // C, out - N * C)[None, :]
    c = (out % C)[None, :]
    split = tl.arange(0, BLOCK_SPLITS)[:, None]
    of_weight = (split < splits) & (out < N * C)[None, :]
    of_bias = (split < splits) & ((out >= N * C) & (out < N * C + N))[None, :]
    acc = tl.zeros((BLOCK_SPLITS, BLOCK_OUT), dtype=tl.float32)
    for q in tl.static_range(PACKED):
        offsets = (q * N + n) * (PACKED * C) + q * C + c
        acc += tl.load(
            partial_weight + split * (PACKED * N * PACKED * C) + offsets, mask=of_weight, other=0.0
        )
        acc += tl.load(partial_bias + split * (PACKED * N) + q * N + n, mask=of_bias, other=0.0)
    total = tl.sum(acc, axis=0)
    if ACCUMULATE:
        total += tl.load(grad_weight + out, mask=out < N * C, other=0.0)
        total += tl.load(
            grad_bias + out - N * C, mask=(out >= N * C) & (out < N * C + N), other=0.0
        )
    tl.store(grad_weight + out, total, mask=out < N * C)
    tl.store(grad_bias + out - N * C, total, mask=(out >= N * C) & (out < N * C + N))
