"""3x3 convolutions and their gradients for few channels, in Triton: some pixels at once.

With few channels a convolution is bound by what it loads, and tap by tap it loads every pixel nine
times. A tile of SY by SX pixels sees a window of SY + 2 by SX + 2. A row of the window lies in
memory as one piece of (SX + 2) C numbers, and what it means for SX pixels beside each other is one
product, with weights of which some are zero: three products for each row of the tile. A row is
loaded once for the three rows of pixels that it is seen from.

Tensors are b h w c in memory; H is a multiple of SY TY, W of SX TX. SY is 1 or 2, or 4
where nothing is weighed.
"""

# Triton has no types, and is not installed where there is no GPU.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def _place(
    m,
    H: tl.constexpr,
    W: tl.constexpr,
    SY: tl.constexpr,
    SX: tl.constexpr,
    TY: tl.constexpr,
    TX: tl.constexpr,
):
    """Of each tile of pixels: its row, its column and the number of its first pixel.

    Tiles are counted in squares of TY by TX, so that those that a program sees at once have most
    of their windows in common.
    """
    square = m // (TY * TX)
    column = square % (W // SX // TX) * TX + m % TX
    square = square // (W // SX // TX)
    row = square % (H // SY // TY) * TY + m // TX % TY
    line = square // (H // SY // TY) * (H // SY) + row
    return row, column, line * SY * W + column * SX


@triton.jit
@no_type_check
def _seen(
    x,
    first,
    row,
    column,
    inside,
    r: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    SY: tl.constexpr,
    SX: tl.constexpr,
    BK: tl.constexpr,
):
    """Row r of each window, zero beyond the image."""
    k = tl.arange(0, BK)
    there = inside
    if r == 0:
        there = there & (row > 0)
    if r == SY + 1:
        there = there & (row < H // SY - 1)
    ok = ((column > 0)[:, None] | (k >= C)[None, :]) & there[:, None]
    ok = ok & ((column < W // SX - 1)[:, None] | (k < (SX + 1) * C)[None, :])
    if BK != (SX + 2) * C:
        ok = ok & (k < (SX + 2) * C)[None, :]
    at = ((first + (r - 1) * W - 1) * C)[:, None] + k[None, :]
    return tl.load(x + at, mask=ok, other=0.0)


@triton.jit
@no_type_check
def _weight(
    w,
    r: tl.constexpr,
    C: tl.constexpr,
    N: tl.constexpr,
    SX: tl.constexpr,
    TURNED: tl.constexpr,
    BK: tl.constexpr,
    BE: tl.constexpr,
):
    """What a row of a window counts for each result, if it is row r of those that a pixel sees."""
    k = tl.arange(0, BK)[:, None]
    e = tl.arange(0, BE)[None, :]
    c = k % C
    n = e % N
    kx = k // C - e // N
    ok = (kx >= 0) & (kx < 3) & (k < (SX + 2) * C) & (e < SX * N)
    if TURNED:
        at = c * (9 * N) + (8 - r * 3 - kx) * N + n
    else:
        at = n * (9 * C) + (r * 3 + kx) * C + c
    return tl.load(w + at, mask=ok, other=0.0)


@triton.jit
@no_type_check
def _give(
    above,
    here,
    below,
    w_0,
    w_1,
    w_2,
    own,
    added,
    x2,
    mask,
    y,
    first,
    inside,
    C2: tl.constexpr,
    N: tl.constexpr,
    SECOND: tl.constexpr,
    RELU: tl.constexpr,
    MASK: tl.constexpr,
    SX: tl.constexpr,
    BM: tl.constexpr,
    BK2: tl.constexpr,
    BE: tl.constexpr,
):
    """The results of one row of each tile, from the rows that it sees."""
    acc = tl.zeros((BM, BE), dtype=tl.float32)
    acc = tl.dot(above, w_0, acc)
    acc = tl.dot(here, w_1, acc)
    acc = tl.dot(below, w_2, acc)
    if SECOND == 2:
        k2 = tl.arange(0, BK2)[None, :]
        other = tl.load(
            x2 + (first * C2)[:, None] + k2, mask=inside[:, None] & (k2 < SX * C2), other=0.0
        )
        acc = tl.dot(other, own, acc)
    e = tl.arange(0, BE)[None, :]
    to = (first * N)[:, None] + e
    ok = inside[:, None] & (e < SX * N)
    if SECOND == 1:
        acc += tl.load(x2 + to, mask=ok, other=0.0).to(tl.float32)
    acc += added[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    if MASK:
        acc = tl.where(tl.load(mask + to, mask=ok, other=0.0) > 0, acc, 0.0)
    tl.store(y + to, acc.to(y.dtype.element_ty), mask=ok)


@triton.jit
@no_type_check
def convolve(
    x,
    w,
    bias,
    x2,
    w2,
    bias2,
    mask,
    y,
    tiles,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    C2: tl.constexpr,
    N: tl.constexpr,
    TURNED: tl.constexpr,
    BIAS: tl.constexpr,
    SECOND: tl.constexpr,
    RELU: tl.constexpr,
    MASK: tl.constexpr,
    SY: tl.constexpr,
    SX: tl.constexpr,
    TY: tl.constexpr,
    TX: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    BK2: tl.constexpr,
    BE: tl.constexpr,
):
    """`taps.convolve`, SY by SX pixels at once; a program goes from tile to tile."""
    w_0 = _weight(w, 0, C, N, SX, TURNED, BK, BE)
    w_1 = _weight(w, 1, C, N, SX, TURNED, BK, BE)
    w_2 = _weight(w, 2, C, N, SX, TURNED, BK, BE)
    e = tl.arange(0, BE)
    n = e % N
    e_ok = e < SX * N
    own = w_0
    if SECOND == 2:
        k2 = tl.arange(0, BK2)
        same = (k2 // C2)[:, None] == (e // N)[None, :]
        if TURNED:
            at2 = (k2 % C2)[:, None] * N + n[None, :]
        else:
            at2 = n[None, :] * C2 + (k2 % C2)[:, None]
        own = tl.load(w2 + at2, mask=same & (k2 < SX * C2)[:, None] & e_ok[None, :], other=0.0)
    added = tl.zeros((BE,), dtype=tl.float32)
    if BIAS:
        added += tl.load(bias + n, mask=e_ok, other=0.0)
        if SECOND == 2:
            added += tl.load(bias2 + n, mask=e_ok, other=0.0)
    for start in range(tl.program_id(0) * BM, tiles, tl.num_programs(0) * BM):
        m = start + tl.arange(0, BM)
        inside = m < tiles
        row, column, first = _place(m, H, W, SY, SX, TY, TX)
        a_0 = _seen(x, first, row, column, inside, 0, H, W, C, SY, SX, BK)
        a_1 = _seen(x, first, row, column, inside, 1, H, W, C, SY, SX, BK)
        a_2 = _seen(x, first, row, column, inside, 2, H, W, C, SY, SX, BK)
        if SY > 1:
            a_3 = _seen(x, first, row, column, inside, 3, H, W, C, SY, SX, BK)
        if SY > 2:
            a_4 = _seen(x, first, row, column, inside, 4, H, W, C, SY, SX, BK)
            a_5 = _seen(x, first, row, column, inside, 5, H, W, C, SY, SX, BK)
        _give(
            *(a_0, a_1, a_2, w_0, w_1, w_2, own, added, x2, mask, y, first, inside),
            *(C2, N, SECOND, RELU, MASK, SX, BM, BK2, BE),
        )
        if SY > 1:
            _give(
                *(a_1, a_2, a_3, w_0, w_1, w_2, own, added, x2, mask, y, first + W, inside),
                *(C2, N, SECOND, RELU, MASK, SX, BM, BK2, BE),
            )
        if SY > 2:
            _give(
                *(a_2, a_3, a_4, w_0, w_1, w_2, own, added, x2, mask, y, first + 2 * W, inside),
                *(C2, N, SECOND, RELU, MASK, SX, BM, BK2, BE),
            )
            _give(
                *(a_3, a_4, a_5, w_0, w_1, w_2, own, added, x2, mask, y, first + 3 * W, inside),
                *(C2, N, SECOND, RELU, MASK, SX, BM, BK2, BE),
            )


@triton.jit
@no_type_check
def weigh(
    x,
    g,
    dw,
    db,
    tiles,
    parts,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    N: tl.constexpr,
    SY: tl.constexpr,
    SX: tl.constexpr,
    TY: tl.constexpr,
    TX: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    BE: tl.constexpr,
):
    """Parts of the gradients of weight and bias, for each result of a row of a tile apart.

    dw[part, r, k, e] = sum over the rows of the tiles of a part of g[row, e] x[row + r - 1, k].
    """
    part = tl.program_id(0)
    e = tl.arange(0, BE)
    e_ok = e < SX * N
    d_0 = tl.zeros((BK, BE), dtype=tl.float32)
    d_1 = tl.zeros((BK, BE), dtype=tl.float32)
    d_2 = tl.zeros((BK, BE), dtype=tl.float32)
    total = tl.zeros((BE,), dtype=tl.float32)
    for start in range(part * BM, tiles, parts * BM):
        m = start + tl.arange(0, BM)
        inside = m < tiles
        row, column, first = _place(m, H, W, SY, SX, TY, TX)
        at = g + (first * N)[:, None] + e[None, :]
        ok = inside[:, None] & e_ok[None, :]
        a_0 = _seen(x, first, row, column, inside, 0, H, W, C, SY, SX, BK)
        a_1 = _seen(x, first, row, column, inside, 1, H, W, C, SY, SX, BK)
        a_2 = _seen(x, first, row, column, inside, 2, H, W, C, SY, SX, BK)
        g_0 = tl.load(at, mask=ok, other=0.0)
        d_0 = tl.dot(tl.trans(a_0), g_0, d_0)
        d_1 = tl.dot(tl.trans(a_1), g_0, d_1)
        d_2 = tl.dot(tl.trans(a_2), g_0, d_2)
        total += tl.sum(g_0.to(tl.float32), axis=0)
        if SY > 1:
            a_3 = _seen(x, first, row, column, inside, 3, H, W, C, SY, SX, BK)
            g_1 = tl.load(at + W * N, mask=ok, other=0.0)
            d_0 = tl.dot(tl.trans(a_1), g_1, d_0)
            d_1 = tl.dot(tl.trans(a_2), g_1, d_1)
            d_2 = tl.dot(tl.trans(a_3), g_1, d_2)
            total += tl.sum(g_1.to(tl.float32), axis=0)
    k = tl.arange(0, BK)
    E: tl.constexpr = SX * N
    R: tl.constexpr = (SX + 2) * C
    to = dw + part * (3 * R * E) + k[:, None] * E + e[None, :]
    ok = (k < R)[:, None] & e_ok[None, :]
    tl.store(to, d_0, mask=ok)
    tl.store(to + R * E, d_1, mask=ok)
    tl.store(to + 2 * R * E, d_2, mask=ok)
    tl.store(db + part * E + e, total, mask=e_ok)


@triton.jit
@no_type_check
def total(
    dw,
    db,
    weight,
    bias,
    parts,
    C: tl.constexpr,
    N: tl.constexpr,
    SX: tl.constexpr,
    ADD: tl.constexpr,
    BP: tl.constexpr,
    BO: tl.constexpr,
):
    """The parts of `weigh` summed: the gradients of the weight, n ky kx c, and of the bias.

    ADD adds them to what is there.
    """
    o = tl.program_id(0) * BO + tl.arange(0, BO)
    n = o % N
    c = (o // N) % C
    kx = (o // (N * C)) % 3
    ky = o // (N * C * 3)
    SIZE: tl.constexpr = 9 * C * N
    WHOLE: tl.constexpr = 3 * (SX + 2) * SX * C * N
    p = tl.arange(0, BP)[:, None]
    of_weight = (p < parts) & (o < SIZE)[None, :]
    of_bias = (p < parts) & ((o >= SIZE) & (o < SIZE + N))[None, :]
    acc = tl.zeros((BP, BO), dtype=tl.float32)
    for q in tl.static_range(SX):
        at = ((ky * (SX + 2) + kx + q) * C + c) * (SX * N) + q * N + n
        acc += tl.load(dw + p * WHOLE + at[None, :], mask=of_weight, other=0.0)
        acc += tl.load(db + p * (SX * N) + (q * N + n)[None, :], mask=of_bias, other=0.0)
    found = tl.sum(acc, axis=0)
    to = n * (9 * C) + (ky * 3 + kx) * C + c
    if ADD:
        found += tl.load(weight + to, mask=o < SIZE, other=0.0)
        found += tl.load(bias + n, mask=(o >= SIZE) & (o < SIZE + N), other=0.0)
    tl.store(weight + to, found, mask=o < SIZE)
    tl.store(bias + n, found, mask=(o >= SIZE) & (o < SIZE + N))
