"""Convolutions, resampling and their gradients as Triton kernels: which one, and how it is cut.

Tensors are b h w c in memory. A weight is o ky kx i, as PyTorch keeps one in channels_last, in the
precision of what it is multiplied with. Sums are float32.
"""

# Triton has no types, and is not installed where there is no GPU.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

import math
from contextlib import AbstractContextManager

import torch
import triton
from torch import Tensor
from torch._C._profiler import _RecordFunctionFast

from mue.kernels import conv3x3 as taps
from mue.kernels import conv3x3_small as windows
from mue.kernels import resample
from mue.nn.blocks import SHARED_KIB

Tiles = dict[str, int]

_LONG = 48  # blocks of pixels in a sum; fewer are faster alone, but leave nothing to work beside


def _noted(name: str, *tensors: Tensor | None) -> AbstractContextManager[None]:
    """Let a profiler see an operator with all it reads and writes, as it sees those of PyTorch."""
    return _RecordFunctionFast(f"mue::{name}", [t for t in tensors if t is not None], {})


def _block(channels: int, most: int) -> int:
    return min(most, max(16, triton.next_power_of_2(channels)))


def window(h: int, w: int, c: int, n: int, sy: int, sx: int) -> Tiles | None:
    """Tiles of sy by sx pixels, where the kernels of `windows` can take them."""
    if h % sy or w % sx:
        return None
    row, result = triton.next_power_of_2((sx + 2) * c), triton.next_power_of_2(sx * n)
    across = math.gcd(w // sx, 8)
    return {
        "SY": sy,
        "SX": sx,
        "TY": math.gcd(h // sy, 64 // across),
        "TX": across,
        "BK": max(16, row),
        "BE": max(16, result),
    }


def _windows(h: int, w: int, c: int, c2: int, n: int, *, masked: bool) -> Tiles | None:
    """The tiles of a convolution by `windows`, where they can take it."""
    if c < 4:
        sx = min(8 // triton.next_power_of_2(c), 128 // triton.next_power_of_2(n))
        seen = window(h, w, c, n, 1 if masked else math.gcd(h, 4), sx)
        how = {"PROGRAMS": 1056 if masked else 264 * c, "num_stages": 1}
    else:
        seen = window(h, w, c, n, math.gcd(h, 2) if masked or (c <= 16 and not c2) else 1, 2)
        how = {"PROGRAMS": 528, "num_stages": 1}
        if not masked:
            how = {"PROGRAMS": 132 if c > 16 or c2 > 32 else 264, "num_stages": 3}
    if seen is None:
        return None
    beside = max(16, triton.next_power_of_2(c2 * seen["SX"]))
    tiles = seen | how | {"BK2": beside, "BM": 64, "num_warps": 4}
    while _shared(tiles, beside if c2 else 0) > SHARED_KIB << 10:
        tiles["num_stages"] -= 1
    return tiles if tiles["num_stages"] else None


def _shared(tiles: Tiles, bk2: int) -> int:
    """Bytes of shared memory that `windows.convolve` takes: weights, rows loaded ahead, results."""
    rows, bm, bk, be = (tiles[name] for name in ("SY", "BM", "BK", "BE"))
    ahead = tiles["num_stages"] * ((rows + 2) * bk + rows * bk2) * bm
    return 2 * ((3 * bk + bk2) * be + ahead + bm * be)


def conv_tiles(m: int, h: int, w: int, c: int, c2: int, n: int, *, masked: bool) -> Tiles:
    """How a convolution of m pixels from c to n channels is cut into tiles; found by trying.

    With SY and SX it is one of `windows`, and PROGRAMS of them go from tile to tile.
    """
    seen = _windows(h, w, c, c2, n, masked=masked) if max(c, n) <= 32 and c2 <= 64 else None
    if seen:
        return seen
    tiles = {"BM": 128, "BN": _block(n, 64 if n % 128 else 128), "BC": _block(c, 64)}
    tiles |= {"BC2": _block(c2, 64), "num_warps": 8, "num_stages": 3}
    if m * n <= 1 << 19:  # the fewer the pixels, the smaller the tiles, and the longer each sum
        side = 32 if m <= 1 << 10 and n <= 128 else 64
        return tiles | {"BM": side, "BN": _block(n, side), "BC": _block(c, 128)}
    if triton.cdiv(m, 128) * triton.cdiv(n, tiles["BN"]) < 132:
        return tiles | {"BM": 64}
    return tiles


def grad_tiles(m: int, h: int, w: int, c: int, n: int, rows: int) -> Tiles:
    """How the gradient of a weight is cut into tiles, and how many parts its sum has."""
    seen = window(h, w, c, n, math.gcd(h, 2) if n <= 16 else 1, 2)
    if rows == 3 and seen and max(c, n) <= 32:
        if c < 4 or n <= 16 < c:
            how = {"BM": 128, "parts": 256, "num_warps": 4, "num_stages": 1}
        else:
            how = {"BM": 64, "parts": 256, "num_warps": 4, "num_stages": 3}
            how |= {"parts": 128, "num_warps": 8} if c > 16 else {}
        most = triton.cdiv(m, 2 * how["BM"] * seen["SY"] * seen["SX"])
        return seen | how | {"parts": min(most, how["parts"])}
    bc, bn, bm = _block(c, 64), _block(n, 64), 128
    each = rows * triton.cdiv(c, bc) * triton.cdiv(n, bn)
    if max(bc, bn) <= 32:  # a warp is of use only with a tile of its own
        warps, most, stages = max(bc, bn) // 16, 512, 1
    elif bn <= 32 or bc <= 32 or (each >= 48 and m <= 1 << 12):
        warps, most, stages = 4, 132 * 8, 2
    else:
        warps, most, stages = 4, 132 * 4, 3
    long = _LONG if rows == 3 else _LONG // 4  # those of a 1x1 do little with what they load
    parts = max(1, min(triton.cdiv(m, bm * long), most // (warps * each)))
    return {"BM": bm, "BN": bn, "BC": bc, "parts": parts, "num_warps": warps, "num_stages": stages}


def convolution(
    x: Tensor,
    w: Tensor,
    *,
    bias: Tensor | None = None,
    second: Tensor | None = None,
    w2: Tensor | None = None,
    bias2: Tensor | None = None,
    mask: Tensor | None = None,
    relu: bool = False,
    turned: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """What `taps.convolve` says, of tensors b h w c."""
    b, h, width, c = x.shape
    n = w.shape[3] if turned else w.shape[0]
    y = x.new_empty((b, h, width, n), dtype=dtype)
    m = b * h * width
    c2 = 0 if second is None else second.shape[3]
    tiles = conv_tiles(m, h, width, c, c2, n, masked=mask is not None)
    tensors = (
        x,
        w,
        w if bias is None else bias,
        x if second is None else second,
        w if w2 is None else w2,
        w if bias2 is None else bias2,
        x if mask is None else mask,
        y,
    )
    what = {
        "H": h,
        "W": width,
        "C": c,
        "C2": max(1, c2),
        "N": n,
        "TURNED": turned,
        "BIAS": bias is not None,
        "SECOND": 0 if second is None else 1 if w2 is None else 2,
        "RELU": relu,
        "MASK": mask is not None,
    }
    with _noted("convolution", x, w, y, second, w2, mask):
        if "SY" in tiles:
            count = m // (tiles["SY"] * tiles["SX"])
            programs = min(tiles.pop("PROGRAMS"), triton.cdiv(count, tiles["BM"]))
            windows.convolve[(programs,)](*tensors, count, **what, **tiles)
        else:
            grid = (triton.cdiv(m, tiles["BM"]), triton.cdiv(n, tiles["BN"]))
            taps.convolve[grid](*tensors, m, **what, **tiles)
    return y


def gradients(
    x: Tensor, g: Tensor, *, rows: int = 3, into: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Gradients of the weight (o ky kx i) and the bias of a convolution of x, from its result's g.

    They are added to what they go into, if that is given.
    """
    c, n = x.shape[3], g.shape[3]
    if into is None:
        weight = x.new_empty((n, rows, rows, c), dtype=torch.float32)
        bias = x.new_empty(n, dtype=torch.float32)
    else:
        weight, bias = into
    with _noted("gradients", x, g, weight):
        _weigh(x, g, weight, bias, rows=rows, add=into is not None)
    return weight, bias


def _weigh(x: Tensor, g: Tensor, weight: Tensor, bias: Tensor, *, rows: int, add: bool) -> None:
    """The sums over all pixels in parts, and then the sum of these."""
    b, h, w, c = x.shape
    n = g.shape[3]
    pixels = 1
    if rows == 1:  # pixels that lie in a row may be seen as one with more channels
        pixels = math.gcd(w, max(1, 128 // triton.next_power_of_2(max(c, n))))
        w, c, n = w // pixels, c * pixels, n * pixels
    m = b * h * w
    tiles = grad_tiles(m, h, w, c, n, rows)
    count = tiles["parts"]
    many = triton.next_power_of_2(count)
    cut = {"BP": many, "BO": max(8, 2048 // (many * pixels)), "num_warps": 8, "ADD": add}
    blocks = (triton.cdiv(weight.numel() + len(bias), cut["BO"]),)
    what = {"H": h, "W": w, "C": c, "N": n}
    if "SY" in tiles:
        sy, sx = tiles["SY"], tiles["SX"]
        found = _parts(x, count, 3 * (sx + 2) * c, sx * n)
        windows.weigh[(count,)](x, g, *found, m // (sy * sx), **what, **tiles)
        windows.total[blocks](*found, weight, bias, count, C=c, N=n, SX=sx, **cut)
        return
    grid = (rows * triton.cdiv(c, tiles["BC"]), count, triton.cdiv(n, tiles["BN"]))
    whole = count == pixels == 1  # a single part is the sum
    found = (weight, bias) if whole else _parts(x, count, rows * rows * c, n)
    taps.weigh[grid](x, g, *found, m, **what, ROWS=rows, ADD=add and whole, **tiles)
    if not whole:
        size = weight.numel() // len(bias)
        taps.total[blocks](*found, weight, bias, count, C=size, N=len(bias), Q=pixels, **cut)


def _parts(like: Tensor, count: int, rows: int, results: int) -> tuple[Tensor, Tensor]:
    return (
        like.new_empty(count * rows * results, dtype=torch.float32),
        like.new_empty(count * results, dtype=torch.float32),
    )


def halved(x: Tensor) -> Tensor:
    """Half the height and width, as `resample.halve` says."""
    b, h, w, c = x.shape
    y = x.new_empty((b, -(-h // 2), -(-w // 2), c))
    m = y.numel() // c
    cut = _pixels(h, w, c)
    with _noted("halve", x, y):
        resample.halve[(triton.cdiv(m, cut["BM"]),)](x, y, m, **cut)
    return y


def rejoined(x: Tensor, g: Tensor | None, smaller: Tensor | None) -> Tensor:
    """The gradient before the ReLU that gave x, from that of x and that of x halved or its mean.

    In g other channels may lie between those of two pixels.
    """
    dx = torch.empty_like(x)
    _, h, w, c = x.shape
    m = x.numel() // c
    cut = _pixels(h, w, c) | {
        "APART": 0 if g is None else c if g.is_contiguous() else g.stride(2),
        "SMALLER": 0 if smaller is None else 1 if smaller.ndim == 4 else 2,
    }
    parts = (x if part is None else part for part in (g, smaller))
    with _noted("rejoin", x, g, smaller, dx):
        resample.rejoin[(triton.cdiv(m, cut["BM"]),)](x, *parts, dx, m, **cut)
    return dx


def doubled_beside(x: Tensor, other: Tensor) -> Tensor:
    """What `resample.double_beside` says."""
    b, h, w, c = x.shape
    c2 = other.shape[3]
    y = x.new_empty((b, 2 * h, 2 * w, c + c2))
    cut = _pixels(h, w, c, c2)
    m = 4 * b * h * w
    with _noted("double_beside", x, other, y):
        resample.double_beside[(triton.cdiv(m, cut["BM"]),)](x, other, y, m, **cut)
    return y


def doubled_apart(g: Tensor, c: int) -> tuple[Tensor, Tensor]:
    """The gradients of its two arguments, of which the first has c channels."""
    b, h, w, both = g.shape
    h, w, c2 = h // 2, w // 2, both - c
    dx, dother = g.new_empty((b, h, w, c)), g.new_empty((b, 2 * h, 2 * w, c2))
    cut = _pixels(h, w, c, c2)
    m = b * h * w
    with _noted("apart", g, dx, dother):
        resample.apart[(triton.cdiv(m, cut["BM"]),)](g, dx, dother, m, **cut)
    return dx, dother


def _pixels(h: int, w: int, c: int, c2: int | None = None) -> Tiles:
    """How resampling is cut: so many pixels that a program has some thousand numbers at hand."""
    many = max(8, 2048 // triton.next_power_of_2(max(c, c2 or 0)))
    tiles = {"H": h, "W": w, "C": c, "BM": many, "BC": _block(c, 4096)}
    return tiles if c2 is None else tiles | {"C2": c2, "BC2": _block(c2, 4096)}
