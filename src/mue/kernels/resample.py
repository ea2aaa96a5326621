"""Halving, and doubling with what stands beside it, in Triton.

Halved, a pixel is the mean of four; half a block at the edge is made whole by repeating it.
Doubled, along one side a new pixel is 3/4 of the old one it lies in and 1/4 of that one's
neighbour; at the edge an old one is its own neighbour. Tensors are b h w c in memory.
"""

# Triton has no types, and is not installed where there is no GPU.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def halve(
    x,
    y,
    pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Make y = x halved, pixel by pixel of y; H and W are those of x."""
    H2: tl.constexpr = (H + 1) // 2
    W2: tl.constexpr = (W + 1) // 2
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    column = m % W2
    line = m // W2
    start = line // H2 * H
    above = (start + 2 * (line % H2)) * W
    below = (start + tl.minimum(2 * (line % H2) + 1, H - 1)) * W
    left = 2 * column
    right = tl.minimum(2 * column + 1, W - 1)
    c = tl.arange(0, BC)[None, :]
    ok = (m < pixels)[:, None] & (c < C)
    acc = tl.load(x + ((above + left) * C)[:, None] + c, mask=ok, other=0.0).to(tl.float32)
    acc += tl.load(x + ((above + right) * C)[:, None] + c, mask=ok, other=0.0).to(tl.float32)
    acc += tl.load(x + ((below + left) * C)[:, None] + c, mask=ok, other=0.0).to(tl.float32)
    acc += tl.load(x + ((below + right) * C)[:, None] + c, mask=ok, other=0.0).to(tl.float32)
    tl.store(y + (m * C)[:, None] + c, (0.25 * acc).to(y.dtype.element_ty), mask=ok)


@triton.jit
@no_type_check
def rejoin(
    x,
    g,
    smaller,
    dx,
    pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    APART: tl.constexpr,
    SMALLER: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """The gradient before a ReLU that gave x, from that of x and that of something smaller.

    APART: from a pixel of g to the next; 0 says that there is no g. SMALLER: 0 nothing, 1 x halved,
    2 its mean over the pixels of each image.
    """
    H2: tl.constexpr = (H + 1) // 2
    W2: tl.constexpr = (W + 1) // 2
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    column = m % W
    line = m // W
    row = line % H
    c = tl.arange(0, BC)[None, :]
    ok = (m < pixels)[:, None] & (c < C)
    at = (m * C)[:, None] + c
    acc = tl.zeros((BM, BC), dtype=tl.float32)
    if SMALLER == 1:
        from_ = ((line // H * H2 + row // 2) * W2 + column // 2) * C
        share = tl.full((BM,), 0.25, dtype=tl.float32)
        if H % 2 == 1:
            share = tl.where(row == H - 1, 2 * share, share)
        if W % 2 == 1:
            share = tl.where(column == W - 1, 2 * share, share)
        found = tl.load(smaller + from_[:, None] + c, mask=ok, other=0.0)
        acc += share[:, None] * found.to(tl.float32)
    if SMALLER == 2:
        found = tl.load(smaller + (line // H * C)[:, None] + c, mask=ok, other=0.0)
        acc += found.to(tl.float32) * (1 / (H * W))
    if APART:
        acc += tl.load(g + (m * APART)[:, None] + c, mask=ok, other=0.0).to(tl.float32)
    acc = tl.where(tl.load(x + at, mask=ok, other=0.0) > 0, acc, 0.0)
    tl.store(dx + at, acc.to(dx.dtype.element_ty), mask=ok)


@triton.jit
@no_type_check
def double_beside(
    x,
    other,
    y,
    pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    C2: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
    BC2: tl.constexpr,
):
    """Make y = (x doubled, other), pixel by pixel of y; H and W are those of x."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = m < pixels
    column = m % (2 * W)
    line = m // (2 * W)
    row = line % (2 * H)
    start = line // (2 * H) * H
    i = row // 2
    j = column // 2
    i2 = tl.minimum(tl.maximum(i + row % 2 * 2 - 1, 0), H - 1)
    j2 = tl.minimum(tl.maximum(j + column % 2 * 2 - 1, 0), W - 1)
    c = tl.arange(0, BC)[None, :]
    ok = inside[:, None] & (c < C)
    at = (start + i) * W
    at2 = (start + i2) * W
    near = tl.load(x + ((at + j) * C)[:, None] + c, mask=ok, other=0.0).to(tl.float32)
    side = tl.load(x + ((at + j2) * C)[:, None] + c, mask=ok, other=0.0).to(tl.float32)
    above = tl.load(x + ((at2 + j) * C)[:, None] + c, mask=ok, other=0.0).to(tl.float32)
    corner = tl.load(x + ((at2 + j2) * C)[:, None] + c, mask=ok, other=0.0).to(tl.float32)
    found = 0.75 * (0.75 * near + 0.25 * side) + 0.25 * (0.75 * above + 0.25 * corner)
    tl.store(y + (m * (C + C2))[:, None] + c, found.to(y.dtype.element_ty), mask=ok)
    c2 = tl.arange(0, BC2)[None, :]
    ok = inside[:, None] & (c2 < C2)
    kept = tl.load(other + (m * C2)[:, None] + c2, mask=ok, other=0.0)
    tl.store(y + (m * (C + C2) + C)[:, None] + c2, kept, mask=ok)


@triton.jit
@no_type_check
def apart(
    g,
    dx,
    dother,
    pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    C2: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
    BC2: tl.constexpr,
):
    """The two gradients of `double_beside`, pixel by pixel of x, each with four of y."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = m < pixels
    column = m % W
    line = m // W
    row = line % H
    start = line // H * (2 * H)
    c = tl.arange(0, BC)[None, :]
    ok = inside[:, None] & (c < C)
    acc = tl.zeros((BM, BC), dtype=tl.float32)
    for dy in tl.static_range(4):
        y = start + tl.minimum(tl.maximum(2 * row + dy - 1, 0), 2 * H - 1)
        for dx_ in tl.static_range(4):
            z = tl.minimum(tl.maximum(2 * column + dx_ - 1, 0), 2 * W - 1)
            at = (y * (2 * W) + z) * (C + C2)
            weight = (0.75 if dy % 3 else 0.25) * (0.75 if dx_ % 3 else 0.25)
            acc += weight * tl.load(g + at[:, None] + c, mask=ok, other=0.0).to(tl.float32)
    tl.store(dx + (m * C)[:, None] + c, acc.to(dx.dtype.element_ty), mask=ok)
    c2 = tl.arange(0, BC2)[None, :]
    ok = inside[:, None] & (c2 < C2)
    for q in tl.static_range(4):
        at = (start + 2 * row + q // 2) * (2 * W) + 2 * column + q % 2
        kept = tl.load(g + (at * (C + C2) + C)[:, None] + c2, mask=ok, other=0.0)
        tl.store(dother + (at * C2)[:, None] + c2, kept, mask=ok)
