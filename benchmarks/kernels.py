"""The convolution kernels against the library's, for the shapes of our networks, on a GPU.

    python benchmarks/kernels.py [--tiles] [--shapes "guess 16-16" ...]

Prints for each shape the microseconds of a 3x3 convolution with bias and ReLU (forward), of the
gradient of its input with the mask (input) and of its weight and bias (weight): by cuDNN, by
`mue.kernels.launch`, and the least that the memory allows. With `--tiles`, many ways to cut them
are
timed, and the fastest three are shown: what `conv_tiles` and `grad_tiles` should choose.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
import torch.nn.functional as F

SHAPES = {
    "guess 1-16": (256, 32, 112, 1, 16),
    "guess 16-16": (256, 32, 112, 16, 16),
    "guess 32-16": (256, 32, 112, 32, 16),
    "guess 16-1": (256, 32, 112, 16, 1),
    "guess 32-32": (256, 16, 56, 32, 32),
    "guess 64-64": (256, 8, 28, 64, 64),
    "guess 128-128": (256, 4, 14, 128, 128),
    "guess 2x7": (256, 2, 7, 128, 128),
    "guess deepest": (256, 1, 4, 128, 128),
    "guess 256-64": (256, 4, 14, 256, 64),
    "guess 128-32": (256, 8, 28, 128, 32),
    "guess 64-16": (256, 16, 56, 64, 16),
    "guess 16-32": (256, 16, 56, 16, 32),
    "lidc 32-32": (64, 128, 128, 32, 32),
    "lidc 64-32": (64, 128, 128, 64, 32),
    "lidc 64-64": (64, 64, 64, 64, 64),
    "lidc 128-128": (64, 32, 32, 128, 128),
    "lidc 192-192": (64, 16, 16, 192, 192),
    "lidc 256-256": (64, 8, 8, 256, 256),
    "lidc deepest": (64, 4, 4, 512, 512),
}
"""Inputs, height, width, channels in and out."""
KINDS = ("forward", "input", "weight")
Tiles = dict[str, int]


def microseconds(work: Callable[[], object], times: int = 10) -> float:
    """How long some work takes, recorded as a graph so that no launch is waited for."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / times * 1e3


def bandwidth() -> float:
    """Bytes a second of a large copy, read and written."""
    a = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / microseconds(lambda: b.copy_(a)) * 1e6


def jobs(shape: str) -> dict[str, tuple[Callable[[], object], Callable[[], torch.Tensor]]]:
    """The three kinds of work at a shape, each by the library and by us."""
    from mue.kernels.launch import convolution, gradients

    b, h, w, c, n = SHAPES[shape]
    torch.manual_seed(0)
    x, g = (torch.randn(b, h, w, i, device="cuda", dtype=torch.bfloat16) for i in (c, n))
    weight = torch.randn(n, 3, 3, c, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(n, device="cuda")
    x_, g_ = x.permute(0, 3, 1, 2), g.permute(0, 3, 1, 2)
    weight_ = weight.permute(0, 3, 1, 2)
    bias_ = bias.bfloat16()

    def back(which: list[bool]) -> tuple[torch.Tensor, ...]:
        return torch.ops.aten.convolution_backward(
            g_, x_, weight_, [n], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, which
        )

    return {
        "forward": (
            lambda: F.conv2d(x_, weight_, bias_, padding=1).relu_(),
            lambda: convolution(x, weight, bias=bias, relu=True),
        ),
        "input": (
            lambda: torch.where(x_ > 0, back([True, False, False])[0], 0),
            lambda: convolution(g, weight, turned=True, mask=x),
        ),
        "weight": (lambda: back([False, True, True]), lambda: gradients(x, g)[0]),
    }


def ways(shape: str, kind: str) -> list[Tiles]:
    """Some ways to cut the work. Not all of them fit into a processor."""
    from mue.kernels import launch as kernels

    b, h, w, c, n = SHAPES[shape]
    if kind == "input":
        c, n = n, c
    m = b * h * w
    grad = kind == "weight"
    own = (
        kernels.grad_tiles(m, h, w, c, n, 3)
        if grad
        else kernels.conv_tiles(m, h, w, c, 0, n, masked=kind == "input")
    )
    found = [own]
    if "SY" in own:
        many = "parts" if grad else "PROGRAMS"
        tall = ((1, 2), (2, 2)) if grad else ((1, 2), (2, 2), (4, 2))
        for tile, bm, stages, count in itertools.product(
            tall, (64, 128), (1, 2, 3), (132, 264, 528)
        ):
            if window := kernels.window(h, w, c, n, *tile):
                cut = {"BM": bm, "num_warps": bm // 16, "num_stages": stages}
                found.append(own | window | cut | {many: count})
        return found
    for bm, warps, stages in itertools.product((64, 128), (4, 8), (1, 3, 4)):
        cut = {"BM": bm, "num_warps": warps, "num_stages": stages}
        if grad:
            parts = (own["parts"], 2 * own["parts"], max(1, own["parts"] // 2))
            found += [own | cut | {"parts": p} for p in parts]
        else:
            found.append(own | cut)
    return found


def every_way(shape: str, kind: str, *, timed: bool) -> list[tuple[float, Tiles]]:
    """The work cut in each of them; untimed, they are only compiled."""
    from mue.kernels import launch as kernels

    found: list[tuple[float, Tiles]] = []
    chooser = "grad_tiles" if kind == "weight" else "conv_tiles"
    own, work = getattr(kernels, chooser), jobs(shape)[kind][1]
    right = work().float()
    for tiles in ways(shape, kind):

        def choose(*_: Any, tiles: Tiles = tiles, **__: Any) -> Tiles:
            return dict(tiles)

        setattr(kernels, chooser, choose)
        try:
            off = (work().float() - right).norm() / right.norm()
            if timed and off > 0.02:
                print(f"  {kind} {tiles}: off by {off:.2f}")
            elif timed:
                found.append((microseconds(work), tiles))
        except Exception as error:  # whatever a compiler may raise
            if timed:
                print(f"  {kind} {tiles}: {type(error).__name__}")
    setattr(kernels, chooser, own)
    return found


def compile_all(job: tuple[str, str]) -> None:
    """Fill the cache of compiled kernels, from a process of its own."""
    every_way(*job, timed=False)


def main() -> None:
    """Time them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tiles", action="store_true", help="time many ways to cut the work")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), help="only these")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    speed = bandwidth()
    print(f"{torch.cuda.get_device_name()}, copies at {speed / 1e12:.2f} TB/s; microseconds")
    if arguments.tiles:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            list(pool.map(compile_all, itertools.product(arguments.shapes, KINDS)))
    print(f"{'shape':16}{'kind':10}{'cuDNN':>8}{'ours':>8}{'ratio':>8}{'floor':>8}")
    for shape in arguments.shapes:
        b, h, w, c, n = SHAPES[shape]
        floor = 2 * b * h * w * (c + n) / speed * 1e6
        for kind, (library, ours) in jobs(shape).items():
            theirs, mine = microseconds(library), microseconds(ours)
            print(f"{shape:16}{kind:10}{theirs:8.0f}{mine:8.0f}{theirs / mine:8.2f}{floor:8.1f}")
        if arguments.tiles:
            for kind in KINDS:
                best = sorted(every_way(shape, kind, timed=True), key=lambda t: t[0])[:3]
                for took, tiles in best:
                    print(f"  {kind} {took:.0f}: {tiles}")


if __name__ == "__main__":
    main()
