"""The convolution kernels against the library's, for the shapes of our networks, on a GPU.

    python benchmarks/kernels.py [--tiles] [--shapes "guess 16-16" ...]

Prints for each shape the microseconds of a 3x3 convolution with bias and ReLU (forward), of the
gradient of its input through the ReLU before it (input) and of the gradients of its weight and bias
(weight): by cuDNN, by `mue.kernels.launch`, and the lower bound given by the memory bandwidth. With
`--tiles`, many block sizes are timed, and the fastest three are shown: what `forward_tiles` and
`grad_weight_tiles` should choose.
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
"""Batch, height, width, input and output channels."""
KINDS = ("forward", "input", "weight")
Tiles = dict[str, int]


def microseconds(work: Callable[[], object], times: int = 10) -> float:
    """The time of one call, in a CUDA graph of several: launches cost nothing there."""
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
    """Memory bandwidth in bytes a second: a large copy, read and written."""
    a = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / microseconds(lambda: b.copy_(a)) * 1e6


def jobs(shape: str) -> dict[str, tuple[Callable[[], object], Callable[[], torch.Tensor]]]:
    """The three kinds of computation at a shape, each by cuDNN and by our kernels."""
    from mue.kernels.launch import conv3x3, conv_grad_weight

    b, h, w, c, n = SHAPES[shape]
    torch.manual_seed(0)
    x, g = (torch.randn(b, h, w, i, device="cuda", dtype=torch.bfloat16) for i in (c, n))
    weight = torch.randn(n, 3, 3, c, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(n, device="cuda")
    x_, g_ = x.permute(0, 3, 1, 2), g.permute(0, 3, 1, 2)
    weight_ = weight.permute(0, 3, 1, 2)
    bias_ = bias.bfloat16()

    def backward(which: list[bool]) -> tuple[torch.Tensor, ...]:
        return torch.ops.aten.convolution_backward(
            g_, x_, weight_, [n], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, which
        )

    return {
        "forward": (
            lambda: F.conv2d(x_, weight_, bias_, padding=1).relu_(),
            lambda: conv3x3(x, weight, bias=bias, relu=True),
        ),
        "input": (
            lambda: torch.where(x_ > 0, backward([True, False, False])[0], 0),
            lambda: conv3x3(g, weight, grad_input=True, relu_mask=x),
        ),
        "weight": (lambda: backward([False, True, True]), lambda: conv_grad_weight(x, g)[0]),
    }


def candidate_tiles(shape: str, kind: str) -> list[Tiles]:
    """The chosen tiles and variations of them. Not all of them fit into shared memory."""
    from mue.kernels import launch

    b, h, w, c, n = SHAPES[shape]
    if kind == "input":
        c, n = n, c
    m = b * h * w
    grad = kind == "weight"
    chosen = (
        launch.grad_weight_tiles(m, h, w, c, n, 3)
        if grad
        else launch.forward_tiles(m, h, w, c, 0, n, has_relu_mask=kind == "input")
    )
    candidates = [chosen]
    if "TILE_H" in chosen:
        grid = "splits" if grad else "programs"
        sizes = ((1, 2), (2, 2)) if grad else ((1, 2), (2, 2), (4, 2))
        for size, block_m, stages, count in itertools.product(
            sizes, (64, 128), (1, 2, 3), (132, 264, 528)
        ):
            if tile := launch.few_channels_tile(h, w, c, n, *size):
                options = {"BLOCK_M": block_m, "num_warps": block_m // 16, "num_stages": stages}
                candidates.append(chosen | tile | options | {grid: count})
        return candidates
    for block_m, warps, stages in itertools.product((64, 128), (4, 8), (1, 3, 4)):
        options = {"BLOCK_M": block_m, "num_warps": warps, "num_stages": stages}
        if grad:
            splits = (chosen["splits"], 2 * chosen["splits"], max(1, chosen["splits"] // 2))
            candidates += [chosen | options | {"splits": s} for s in splits]
        else:
            candidates.append(chosen | options)
    return candidates


def time_candidates(shape: str, kind: str, *, timed: bool) -> list[tuple[float, Tiles]]:
    """The time of each of the candidate tiles; with `timed=False`, they are only compiled."""
    from mue.kernels import launch

    times: list[tuple[float, Tiles]] = []
    chooser = "grad_weight_tiles" if kind == "weight" else "forward_tiles"
    original, job = getattr(launch, chooser), jobs(shape)[kind][1]
    expected = job().float()
    for tiles in candidate_tiles(shape, kind):

        def choose(*_: Any, tiles: Tiles = tiles, **__: Any) -> Tiles:
            return dict(tiles)

        setattr(launch, chooser, choose)
        try:
            error = (job().float() - expected).norm() / expected.norm()
            if timed and error > 0.02:
                print(f"  {kind} {tiles}: relative error {error:.2f}")
            elif timed:
                times.append((microseconds(job), tiles))
        except Exception as failure:  # whatever a compiler may raise
            if timed:
                print(f"  {kind} {tiles}: {type(failure).__name__}")
    setattr(launch, chooser, original)
    return times


def compile_all(job: tuple[str, str]) -> None:
    """Fill Triton's cache of compiled kernels, from a process of its own."""
    time_candidates(*job, timed=False)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tiles", action="store_true", help="time many block sizes")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), help="only these shapes")
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
            cudnn, triton = microseconds(library), microseconds(ours)
            print(f"{shape:16}{kind:10}{cudnn:8.0f}{triton:8.0f}{cudnn / triton:8.2f}{floor:8.1f}")
        if arguments.tiles:
            for kind in KINDS:
                best = sorted(time_candidates(shape, kind, timed=True), key=lambda t: t[0])[:3]
                for time, tiles in best:
                    print(f"  {kind} {time:.0f}: {tiles}")


if __name__ == "__main__":
    main()
