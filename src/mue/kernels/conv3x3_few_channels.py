"""3x3 convolutions and their gradients in Triton for at most 32 channels: several pixels at once.

With few channels at full resolution a convolution is bound by memory, not by arithmetic, and the
kernels of `conv3x3` load every pixel nine times. Here TILE_H x TILE_W pixels are computed together,
from a window of (TILE_H + 2) x (TILE_W + 2): four loads a pixel for tiles of 2 x 2.

In memory a row of the window is one contiguous piece of (TILE_W + 2) C values. The TILE_W N values
of a row of outputs are its product with a matrix that holds one row of the kernel along its
diagonals and zeros elsewhere (a Toeplitz matrix), summed over the three rows of the kernel. Each
row of the window is loaded once for all rows of outputs that use it. The price, multiplications by
zero, is paid in arithmetic, of which there is plenty while the tensor cores wait for memory.

The kernels are persistent: a program keeps its weights, or its sums of gradients, on the chip and
loops over blocks of BLOCK_M tiles. Tiles are numbered in groups of GROUP_H x GROUP_W, so that a
block of them covers a compact region whose windows overlap in the cache.

Memory layout and names are those of `conv3x3`, except that m counts tiles; k counts the values of a
row of a window and out those of a row of outputs. H is a multiple of TILE_H GROUP_H, W of
TILE_W GROUP_W. TILE_H is 1 or 2, in the forward kernel also 4.
"""

# Triton has no types, and is not installed where there is no GPU.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def _tile_position(
    m,
    H: tl.constexpr,
    W: tl.constexpr,
    TILE_H: tl.constexpr,
    TILE_W: tl.constexpr,
    GROUP_H: tl.constexpr,
    GROUP_W: tl.constexpr,
):
    """The row and column of tile m among the tiles of its image, and the index of its first pixel.

    Tiles are numbered group by group, as blocks of a matrix product are for the L2 cache.
    """
    group = m // (GROUP_H * GROUP_W)
    column = group % (W // TILE_W // GROUP_W) * GROUP_W + m % GROUP_W
    group = group // (W // TILE_W // GROUP_W)
    row = group % (H // TILE_H // GROUP_H) * GROUP_H + m // GROUP_W % GROUP_H
    batch_row = group // (H // TILE_H // GROUP_H) * (H // TILE_H) + row
    return row, column, batch_row * TILE_H * W + column * TILE_W


@triton.jit
@no_type_check
def _load_window_row(
    x,
    first,
    row,
    column,
    m_valid,
    r: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    TILE_H: tl.constexpr,
    TILE_W: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Row r of the window around each tile, BLOCK_M x BLOCK_K; zero outside the image."""
    k = tl.arange(0, BLOCK_K)
    row_valid = m_valid
    if r == 0:
        row_valid = row_valid & (row > 0)
    if r == TILE_H + 1:
        row_valid = row_valid & (row < H // TILE_H - 1)
    valid = ((column > 0)[:, None] | (k >= C)[None, :]) & row_valid[:, None]
    valid = valid & ((column < W // TILE_W - 1)[:, None] | (k < (TILE_W + 1) * C)[None, :])
    if BLOCK_K != (TILE_W + 2) * C:
        valid = valid & (k < (TILE_W + 2) * C)[None, :]
    offsets = ((first + (r - 1) * W - 1) * C)[:, None] + k[None, :]
    return tl.load(x + offsets, mask=valid, other=0.0)


@triton.jit
@no_type_check
def _toeplitz_weights(
    weight,
    ky: tl.constexpr,
    C: tl.constexpr,
    N: tl.constexpr,
    TILE_W: tl.constexpr,
    GRAD_INPUT: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
):
    """Row ky of the kernel as a matrix from a row of a window to a row of outputs.

    Entry (k, out) is the weight at kx = (pixel of k) - (pixel of out) where that is 0, 1 or 2, and
    zero otherwise.
    """
    k = tl.arange(0, BLOCK_K)[:, None]
    out = tl.arange(0, BLOCK_OUT)[None, :]
    c = k % C
    n = out % N
    kx = k // C - out // N
    valid = (kx >= 0) & (kx < 3) & (k < (TILE_W + 2) * C) & (out < TILE_W * N)
    if GRAD_INPUT:
        offsets = c * (9 * N) + (8 - ky * 3 - kx) * N + n
    else:
        offsets = n * (9 * C) + (ky * 3 + kx) * C + c
    return tl.load(weight + offsets, mask=valid, other=0.0)


@triton.jit
@no_type_check
def _store_output_row(
    x_above,
    x_same,
    x_below,
    w_0,
    w_1,
    w_2,
    w_shortcut,
    bias,
    shortcut,
    relu_mask,
    y,
    first,
    m_valid,
    C_SHORTCUT: tl.constexpr,
    N: tl.constexpr,
    SHORTCUT: tl.constexpr,
    RELU: tl.constexpr,
    RELU_MASK: tl.constexpr,
    TILE_W: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K_SHORTCUT: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
):
    """One row of outputs of each tile, from the rows above, at and below it, written to y."""
    acc = tl.zeros((BLOCK_M, BLOCK_OUT), dtype=tl.float32)
    acc = tl.dot(x_above, w_0, acc)
    acc = tl.dot(x_same, w_1, acc)
    acc = tl.dot(x_below, w_2, acc)
    if SHORTCUT == 2:
        k = tl.arange(0, BLOCK_K_SHORTCUT)[None, :]
        a = tl.load(
            shortcut + (first * C_SHORTCUT)[:, None] + k,
            mask=m_valid[:, None] & (k < TILE_W * C_SHORTCUT),
            other=0.0,
        )
        acc = tl.dot(a, w_shortcut, acc)
    out = tl.arange(0, BLOCK_OUT)[None, :]
    y_offsets = (first * N)[:, None] + out
    y_valid = m_valid[:, None] & (out < TILE_W * N)
    if SHORTCUT == 1:
        acc += tl.load(shortcut + y_offsets, mask=y_valid, other=0.0).to(tl.float32)
    acc += bias[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    if RELU_MASK:
        acc = tl.where(tl.load(relu_mask + y_offsets, mask=y_valid, other=0.0) > 0, acc, 0.0)
    tl.store(y + y_offsets, acc.to(y.dtype.element_ty), mask=y_valid)


@triton.jit
@no_type_check
def conv3x3_forward_few_channels(
    x,
    weight,
    bias,
    shortcut,
    shortcut_weight,
    shortcut_bias,
    relu_mask,
    y,
    num_tiles,
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
    TILE_H: tl.constexpr,
    TILE_W: tl.constexpr,
    GROUP_H: tl.constexpr,
    GROUP_W: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_K_SHORTCUT: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
):
    """What `conv3x3.conv3x3_forward` computes, TILE_H x TILE_W pixels at once."""
    w_0 = _toeplitz_weights(weight, 0, C, N, TILE_W, GRAD_INPUT, BLOCK_K, BLOCK_OUT)
    w_1 = _toeplitz_weights(weight, 1, C, N, TILE_W, GRAD_INPUT, BLOCK_K, BLOCK_OUT)
    w_2 = _toeplitz_weights(weight, 2, C, N, TILE_W, GRAD_INPUT, BLOCK_K, BLOCK_OUT)
    out = tl.arange(0, BLOCK_OUT)
    n = out % N
    out_valid = out < TILE_W * N
    w_shortcut = w_0  # a placeholder where there is no 1x1 convolution
    if SHORTCUT == 2:
        k = tl.arange(0, BLOCK_K_SHORTCUT)
        same_pixel = (k // C_SHORTCUT)[:, None] == (out // N)[None, :]
        if GRAD_INPUT:
            offsets = (k % C_SHORTCUT)[:, None] * N + n[None, :]
        else:
            offsets = n[None, :] * C_SHORTCUT + (k % C_SHORTCUT)[:, None]
        w_shortcut = tl.load(
            shortcut_weight + offsets,
            mask=same_pixel & (k < TILE_W * C_SHORTCUT)[:, None] & out_valid[None, :],
            other=0.0,
        )
    bias_sum = tl.zeros((BLOCK_OUT,), dtype=tl.float32)
    if HAS_BIAS:
        bias_sum += tl.load(bias + n, mask=out_valid, other=0.0)
        if SHORTCUT == 2:
            bias_sum += tl.load(shortcut_bias + n, mask=out_valid, other=0.0)
    for start in range(tl.program_id(0) * BLOCK_M, num_tiles, tl.num_programs(0) * BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        m_valid = m < num_tiles
        row, column, first = _tile_position(m, H, W, TILE_H, TILE_W, GROUP_H, GROUP_W)
        x_0 = _load_window_row(x, first, row, column, m_valid, 0, H, W, C, TILE_H, TILE_W, BLOCK_K)
        x_1 = _load_window_row(x, first, row, column, m_valid, 1, H, W, C, TILE_H, TILE_W, BLOCK_K)
        x_2 = _load_window_row(x, first, row, column, m_valid, 2, H, W, C, TILE_H, TILE_W, BLOCK_K)
        if TILE_H > 1:
            x_3 = _load_window_row(
                x, first, row, column, m_valid, 3, H, W, C, TILE_H, TILE_W, BLOCK_K
            )
        if TILE_H > 2:
            x_4 = _load_window_row(
                x, first, row, column, m_valid, 4, H, W, C, TILE_H, TILE_W, BLOCK_K
            )
            x_5 = _load_window_row(
                x, first, row, column, m_valid, 5, H, W, C, TILE_H, TILE_W, BLOCK_K
            )
        _store_output_row(
            *(x_0, x_1, x_2, w_0, w_1, w_2, w_shortcut, bias_sum),
            *(shortcut, relu_mask, y, first, m_valid),
            *(C_SHORTCUT, N, SHORTCUT, RELU, RELU_MASK),
            *(TILE_W, BLOCK_M, BLOCK_K_SHORTCUT, BLOCK_OUT),
        )
        if TILE_H > 1:
            _store_output_row(
                *(x_1, x_2, x_3, w_0, w_1, w_2, w_shortcut, bias_sum),
                *(shortcut, relu_mask, y, first + W, m_valid),
                *(C_SHORTCUT, N, SHORTCUT, RELU, RELU_MASK),
                *(TILE_W, BLOCK_M, BLOCK_K_SHORTCUT, BLOCK_OUT),
            )
        if TILE_H > 2:
            _store_output_row(
                *(x_2, x_3, x_4, w_0, w_1, w_2, w_shortcut, bias_sum),
                *(shortcut, relu_mask, y, first + 2 * W, m_valid),
                *(C_SHORTCUT, N, SHORTCUT, RELU, RELU_MASK),
                *(TILE_W, BLOCK_M, BLOCK_K_SHORTCUT, BLOCK_OUT),
            )
            _store_output_row(
                *(x_3, x_4, x_5, w_0, w_1, w_2, w_shortcut, bias_sum),
                *(shortcut, relu_mask, y, first + 3 * W, m_valid),
                *(C_SHORTCUT, N, SHORTCUT, RELU, RELU_MASK),
                *(TILE_W, BLOCK_M, BLOCK_K_SHORTCUT, BLOCK_OUT),
            )


@triton.jit
@no_type_check
def conv3x3_grad_weight_few_channels(
    x,
    grad,
    grad_weight,
    grad_bias,
    num_tiles,
    splits,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    N: tl.constexpr,
    TILE_H: tl.constexpr,
    TILE_W: tl.constexpr,
    GROUP_H: tl.constexpr,
    GROUP_W: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
):
    """Partial sums of the gradients of the three Toeplitz matrices and of the bias.

        grad_weight[split, ky, k, out] = sum_row grad[row, out] x[row + ky - 1, k]
        grad_bias[split, out] = sum_row grad[row, out]

    A weight stands in a Toeplitz matrix TILE_W times, once for each pixel of a row; the sum over
    these and over the splits is left to `sum_partial_gradients_few_channels`.
    """
    split = tl.program_id(0)
    out = tl.arange(0, BLOCK_OUT)
    out_valid = out < TILE_W * N
    sum_0 = tl.zeros((BLOCK_K, BLOCK_OUT), dtype=tl.float32)
    sum_1 = tl.zeros((BLOCK_K, BLOCK_OUT), dtype=tl.float32)
    sum_2 = tl.zeros((BLOCK_K, BLOCK_OUT), dtype=tl.float32)
    bias_sum = tl.zeros((BLOCK_OUT,), dtype=tl.float32)
    for start in range(split * BLOCK_M, num_tiles, splits * BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        m_valid = m < num_tiles
        row, column, first = _tile_position(m, H, W, TILE_H, TILE_W, GROUP_H, GROUP_W)
        g_ptrs = grad + (first * N)[:, None] + out[None, :]
        g_valid = m_valid[:, None] & out_valid[None, :]
        x_0 = _load_window_row(x, first, row, column, m_valid, 0, H, W, C, TILE_H, TILE_W, BLOCK_K)
        x_1 = _load_window_row(x, first, row, column, m_valid, 1, H, W, C, TILE_H, TILE_W, BLOCK_K)
        x_2 = _load_window_row(x, first, row, column, m_valid, 2, H, W, C, TILE_H, TILE_W, BLOCK_K)
        g_0 = tl.load(g_ptrs, mask=g_valid, other=0.0)
        sum_0 = tl.dot(tl.trans(x_0), g_0, sum_0)
        sum_1 = tl.dot(tl.trans(x_1), g_0, sum_1)
        sum_2 = tl.dot(tl.trans(x_2), g_0, sum_2)
        bias_sum += tl.sum(g_0.to(tl.float32), axis=0)
        if TILE_H > 1:
            x_3 = _load_window_row(
                x, first, row, column, m_valid, 3, H, W, C, TILE_H, TILE_W, BLOCK_K
            )
            g_1 = tl.load(g_ptrs + W * N, mask=g_valid, other=0.0)
            sum_0 = tl.dot(tl.trans(x_1), g_1, sum_0)
            sum_1 = tl.dot(tl.trans(x_2), g_1, sum_1)
            sum_2 = tl.dot(tl.trans(x_3), g_1, sum_2)
            bias_sum += tl.sum(g_1.to(tl.float32), axis=0)
    k = tl.arange(0, BLOCK_K)
    OUT: tl.constexpr = TILE_W * N
    K: tl.constexpr = (TILE_W + 2) * C
    out_ptrs = grad_weight + split * (3 * K * OUT) + k[:, None] * OUT + out[None, :]
    valid = (k < K)[:, None] & out_valid[None, :]
    tl.store(out_ptrs, sum_0, mask=valid)
    tl.store(out_ptrs + K * OUT, sum_1, mask=valid)
    tl.store(out_ptrs + 2 * K * OUT, sum_2, mask=valid)
    tl.store(grad_bias + split * OUT + out, bias_sum, mask=out_valid)


@triton.jit
@no_type_check
def sum_partial_gradients_few_channels(
    partial_weight,
    partial_bias,
    grad_weight,
    grad_bias,
    splits,
    C: tl.constexpr,
    N: tl.constexpr,
    TILE_W: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
):
    """The sum over all splits and pixels of `conv3x3_grad_weight_few_channels`.

    Gives the gradients of the weight, n ky kx c, and of the bias. ACCUMULATE adds to the values
    that are there.
    """
    # The weight's gradients come first, then the bias's: out counts both, as ky kx c n.
    out = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    n = out % N
    c = (out // N) % C
    kx = (out // (N * C)) % 3
    ky = out // (N * C * 3)
    WEIGHT_SIZE: tl.constexpr = 9 * C * N
    SPLIT_SIZE: tl.constexpr = 3 * (TILE_W + 2) * TILE_W * C * N
    split = tl.arange(0, BLOCK_SPLITS)[:, None]
    of_weight = (split < splits) & (out < WEIGHT_SIZE)[None, :]
    of_bias = (split < splits) & ((out >= WEIGHT_SIZE) & (out < WEIGHT_SIZE + N))[None, :]
    acc = tl.zeros((BLOCK_SPLITS, BLOCK_OUT), dtype=tl.float32)
    for q in tl.static_range(TILE_W):
        offsets = ((ky * (TILE_W + 2) + kx + q) * C + c) * (TILE_W * N) + q * N + n
        acc += tl.load(
            partial_weight + split * SPLIT_SIZE + offsets[None, :], mask=of_weight, other=0.0
        )
        acc += tl.load(
            partial_bias + split * (TILE_W * N) + (q * N + n)[None, :], mask=of_bias, other=0.0
        )
    total = tl.sum(acc, axis=0)
    w_offsets = n * (9 * C) + (ky * 3 + kx) * C + c
    if ACCUMULATE:
        total += tl.load(grad_weight + w_offsets, mask=out < WEIGHT_SIZE, other=0.0)
        total += tl.load(
            grad_bias + n, mask=(out >= WEIGHT_SIZE) & (out < WEIGHT_SIZE + N), other=0.0
        )
    tl.store(grad_weight + w_offsets, total, mask=out < WEIGHT_SIZE)
    tl.store(grad_bias + n, total, mask=(out >= WEIGHT_SIZE) & (out < WEIGHT_SIZE + N))
