"""3x3 convolutions and their gradients, in Triton, one tap of the kernel after the other.

Tensors are b h w c in memory. A weight is o ky kx i, as PyTorch keeps one in channels_last, in the
precision of what it is multiplied with. Sums are float32.
"""

# Triton has no types, and is not installed where there is no GPU.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

from typing import no_type_check

import triton
import triton.language as tl


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
    m_all,
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
    BM: tl.constexpr,
    BN: tl.constexpr,
    BC: tl.constexpr,
    BC2: tl.constexpr,
):
    """A 3x3 convolution with what surrounds it: y = [mask >] [relu] (x * w + bias + shortcut(x2)).

    TURNED reads the weights as the gradient of the input needs them: the kernel turned round, in
    and out exchanged. SECOND: 0 no shortcut, 1 x2 itself, 2 a 1x1 convolution of x2.
    """
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = m < m_all
    column = m % W
    row = (m // W) % H
    n_ok = n < N
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    blocks: tl.constexpr = (C + BC - 1) // BC
    for t in range(9 * blocks):
        tap = t // blocks
        c = (t % blocks) * BC + tl.arange(0, BC)
        dy = tap // 3 - 1
        dx = tap % 3 - 1
        seen = inside & (row + dy >= 0) & (row + dy < H) & (column + dx >= 0) & (column + dx < W)
        at = x + (m + dy * W + dx)[:, None] * C + c[None, :]
        if C % BC == 0:
            a = tl.load(at, mask=seen[:, None], other=0.0)
        else:
            ok = seen[:, None] & (c < C)[None, :]
            a = tl.load(at, mask=ok, other=0.0)
        if TURNED:
            of = w + c[:, None] * (9 * N) + (8 - tap) * N + n[None, :]
        else:
            of = w + n[None, :] * (9 * C) + tap * C + c[:, None]
        if C % BC == 0 and N % BN == 0:
            b = tl.load(of)
        else:
            b = tl.load(of, mask=(c < C)[:, None] & n_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    if SECOND == 2:
        for t in range((C2 + BC2 - 1) // BC2):
            c = t * BC2 + tl.arange(0, BC2)
            a = tl.load(
                x2 + m[:, None] * C2 + c[None, :],
                mask=inside[:, None] & (c < C2)[None, :],
                other=0.0,
            )
            if TURNED:
                of = w2 + c[:, None] * N + n[None, :]
            else:
                of = w2 + n[None, :] * C2 + c[:, None]
            b = tl.load(of, mask=(c < C2)[:, None] & n_ok[None, :], other=0.0)
            acc = tl.dot(a, b, acc)
    to = m[:, None] * N + n[None, :]
    ok = inside[:, None] & n_ok[None, :]
    if SECOND == 1:
        acc += tl.load(x2 + to, mask=ok, other=0.0).to(tl.float32)
    if BIAS:
        acc += tl.load(bias + n, mask=n_ok, other=0.0)[None, :]
        if SECOND == 2:
            acc += tl.load(bias2 + n, mask=n_ok, other=0.0)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    if MASK:
        acc = tl.where(tl.load(mask + to, mask=ok, other=0.0) > 0, acc, 0.0)
    tl.store(y + to, acc.to(y.dtype.element_ty), mask=ok)


@triton.jit
@no_type_check
def weigh(
    x,
    g,
    dw,
    db,
    m_all,
    parts,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    ADD: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BC: tl.constexpr,
):
    """Parts of the gradients of weight and bias: of a row of a 3x3 kernel, or of a 1x1 (ROWS 1).

    dw[part, n, tap, c] = sum over the pixels of a part of g[pixel, n] x[pixel + tap, c]. ADD adds
    them to what is there.
    """
    part = tl.program_id(1)
    blocks: tl.constexpr = (C + BC - 1) // BC
    ky = tl.program_id(0) // blocks
    c = (tl.program_id(0) % blocks) * BC + tl.arange(0, BC)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    c_ok = c < C
    n_ok = n < N
    left = tl.zeros((BC, BN), dtype=tl.float32)
    middle = tl.zeros((BC, BN), dtype=tl.float32)
    right = tl.zeros((BC, BN), dtype=tl.float32)
    total = tl.zeros((BN,), dtype=tl.float32)
    dy = ky - 1 if ROWS == 3 else 0
    for start in range(part * BM, m_all, parts * BM):
        m = start + tl.arange(0, BM)
        inside = m < m_all
        column = m % W
        row = (m // W) % H
        gy = tl.load(
            g + m[:, None] * N + n[None, :], mask=inside[:, None] & n_ok[None, :], other=0.0
        )
        seen = inside & (row + dy >= 0) & (row + dy < H)
        at = x + (m + dy * W)[:, None] * C + c[None, :]
        ok = seen[:, None] & c_ok[None, :]
        a = tl.load(at, mask=ok, other=0.0)
        middle = tl.dot(tl.trans(a), gy, middle)
        if ROWS == 3:
            a = tl.load(at - C, mask=ok & (column > 0)[:, None], other=0.0)
            left = tl.dot(tl.trans(a), gy, left)
            ok = ok & (column < W - 1)[:, None]
            a = tl.load(at + C, mask=ok, other=0.0)
            right = tl.dot(tl.trans(a), gy, right)
        total += tl.sum(gy.to(tl.float32), axis=0)
    ok = c_ok[:, None] & n_ok[None, :]
    if ROWS == 3:
        to = dw + ((part * N + n[None, :]) * 9 + ky * 3) * C + c[:, None]
        if ADD:
            left += tl.load(to, mask=ok, other=0.0)
            middle += tl.load(to + C, mask=ok, other=0.0)
            right += tl.load(to + 2 * C, mask=ok, other=0.0)
        tl.store(to, left, mask=ok)
        tl.store(to + C, middle, mask=ok)
        tl.store(to + 2 * C, right, mask=ok)
    else:
        to = dw + (part * N + n[None, :]) * C + c[:, None]
        if ADD:
            middle += tl.load(to, mask=ok, other=0.0)
        tl.store(to, middle, mask=ok)
    if tl.program_id(0) == 0:
        if ADD:
            total += tl.load(db + part * N + n, mask=n_ok, other=0.0)
        tl.store(db + part * N + n, total, mask=n_ok)


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
    Q: tl.constexpr,
    ADD: tl.constexpr,
    BP: tl.constexpr,
    BO: tl.constexpr,
):
    """The parts of `weigh` summed: the gradients of the weight, n c, and of the bias.

    ADD adds them to what is there. Where Q pixels were taken as one, with Q times the channels,
    each is to be seen by itself: of the Q by Q blocks of the result, those on the diagonal.
    """
    o = tl.program_id(0) * BO + tl.arange(0, BO)
    n = tl.where(o < N * C, o // C, o - N * C)[None, :]
    c = (o % C)[None, :]
    p = tl.arange(0, BP)[:, None]
    of_weight = (p < parts) & (o < N * C)[None, :]
    of_bias = (p < parts) & ((o >= N * C) & (o < N * C + N))[None, :]
    acc = tl.zeros((BP, BO), dtype=tl.float32)
    for q in tl.static_range(Q):
        at = (q * N + n) * (Q * C) + q * C + c
        acc += tl.load(dw + p * (Q * N * Q * C) + at, mask=of_weight, other=0.0)
        acc += tl.load(db + p * (Q * N) + q * N + n, mask=of_bias, other=0.0)
    found = tl.sum(acc, axis=0)
    if ADD:
        found += tl.load(weight + o, mask=o < N * C, other=0.0)
        found += tl.load(bias + o - N * C, mask=(o >= N * C) & (o < N * C + N), other=0.0)
    tl.store(weight + o, found, mask=o < N * C)
    tl.store(bias + o - N * C, found, mask=(o >= N * C) & (o < N * C + N))
