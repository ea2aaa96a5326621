"""How many times faster the metrics are than the loops that define them.

    python benchmarks/metrics.py

Both are measured in one run, side by side, on the same masks, and must agree; each time is the
best of five. The loops are timed on one slice of each chunk and scaled up to all slices. The masks
are made from a seed, at 128x128: `lesions` are ellipses of the size of those in LIDC-IDRI (half are
higher than 10 pixels, one in twenty than 34), a fifth of them empty; `noise` is the worst case, in
which every pixel is in some mask of its slice. Threads wait for one another: where others keep the
cores busy, set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from mue.metrics.energy import ged, sample_indices
from mue.metrics.matching import hm_iou_n

SLICES, HYPOTHESES, RATERS, SIDE, SAMPLES = 2331, 16, 4, 128, 16
CHUNK = 32  # slices at a time: memory stays bounded, and masks stay in the cache


@dataclass(frozen=True)
class Batch:
    """Some slices: masks and weights of the hypotheses, then of the raters."""

    s: Tensor
    p: Tensor
    ys: Tensor
    q: Tensor

    def first(self) -> Batch:
        """The first slice alone."""
        return Batch(self.s[:1], self.p[:1], self.ys[:1], self.q[:1])


Make = Callable[[int, int, torch.Generator], Tensor]
Measure = Callable[[Batch], Tensor]


def lesions(b: int, k: int, generator: torch.Generator) -> Tensor:
    """Ellipses around the middle of each slice, a fifth of them empty: b k 1 h w."""
    side = torch.arange(SIDE, dtype=torch.float32)
    size = 5 * torch.exp(0.74 * torch.randn(b, 1, 1, generator=generator))
    middle = SIDE / 2 + size / 4 * torch.randn(b, k, 2, generator=generator)
    radius = size * torch.exp(0.2 * torch.randn(b, k, 2, generator=generator))
    far = ((side - middle[..., None]) / radius[..., None]).square()
    there = torch.rand(b, k, 1, 1, 1, generator=generator) > 0.2
    return (far[:, :, 0, :, None] + far[:, :, 1, None, :] < 1)[:, :, None] & there


def noise(b: int, k: int, generator: torch.Generator) -> Tensor:
    """Each pixel is on with probability 1/2: b k 1 h w."""
    return torch.rand(b, k, 1, SIDE, SIDE, generator=generator) < 0.5


def batches(make: Make) -> Iterator[Batch]:
    """Every slice once."""
    generator = torch.Generator().manual_seed(0)
    for start in range(0, SLICES, CHUNK):
        b = min(CHUNK, SLICES - start)
        s, ys = make(b, HYPOTHESES, generator), make(b, RATERS, generator)
        p = torch.rand(b, HYPOTHESES, generator=generator).softmax(dim=1)
        yield Batch(s, p, ys, torch.full((b, RATERS), 1 / RATERS))


def mue_ged(batch: Batch) -> Tensor:
    """The energy distance, from all three matrices of distances."""
    return ged(batch.s, batch.p, batch.ys, batch.q)


def mue_hm_iou(batch: Batch) -> Tensor:
    """The matched IoU of 16 samples."""
    return hm_iou_n(batch.s, batch.p, batch.ys, SAMPLES, torch.Generator().manual_seed(0))


def loop_iou(a: Tensor, b: Tensor) -> NDArray[np.float64]:
    """IoU of every two masks, as one would write it down."""
    x, y = a.numpy(), b.numpy()
    table = np.ones((len(x), len(y)))
    for i, j in product(range(len(x)), range(len(y))):
        union = np.logical_or(x[i], y[j]).sum()
        if union:
            table[i, j] = np.logical_and(x[i], y[j]).sum() / union
    return table


def loop_ged(batch: Batch) -> Tensor:
    """The energy distance, slice by slice and pair by pair."""
    found: list[float] = []
    for s, y, p, q in zip(batch.s, batch.ys, batch.p.numpy(), batch.q.numpy(), strict=True):
        sy, ss, yy = (1 - loop_iou(a, b) for a, b in ((s, y), (s, s), (y, y)))
        found.append(2 * p @ sy @ q - p @ ss @ p - q @ yy @ q)
    return torch.tensor(found)


def loop_hm_iou(batch: Batch) -> Tensor:
    """The matched IoU, slice by slice and pair by pair of the sampled masks."""
    picks = sample_indices(batch.p, SAMPLES, torch.Generator().manual_seed(0))
    found: list[float] = []
    for s, y, pick in zip(batch.s, batch.ys, picks, strict=True):
        table = loop_iou(s[pick], y).repeat(SAMPLES // RATERS, axis=1)
        found.append(table[linear_sum_assignment(table, maximize=True)].mean())
    return torch.tensor(found)


def seconds(measure: Measure, batch: Batch) -> float:
    """The best of five."""
    times: list[float] = []
    for _ in range(5):
        start = perf_counter()
        measure(batch)
        times.append(perf_counter() - start)
    return min(times)


def row(name: str, make: Make, fast: Measure, loop: Measure) -> str:
    """One line of the table."""
    quick, slow, looped = 0.0, 0.0, 0
    for batch in batches(make):
        one = batch.first()
        torch.testing.assert_close(fast(batch)[:1], loop(one).float(), atol=1e-5, rtol=0)
        quick += seconds(fast, batch)
        slow += seconds(loop, one)
        looped += 1
    slow *= SLICES / looped
    ratio = f"**{slow / quick:.0f}**"
    return f"| `{name}` | {make.__name__} | {slow:.1f} s ({looped}) | {quick:.3f} s | {ratio} |"


def main() -> None:
    """Measure and print."""
    print(
        f"{SLICES:,} slices, {HYPOTHESES} hypotheses, {RATERS} raters, {SIDE}x{SIDE}; "
        f"{platform.machine()} CPU, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"numpy {np.__version__}.\n"
        "Loops are timed on the slices in brackets and scaled up to all of them.\n"
    )
    print("| metric | masks | loops | mue | times faster |")
    print("|---|---|---:|---:|---:|")
    print(row("ged", lesions, mue_ged, loop_ged))
    print(row("ged", noise, mue_ged, loop_ged))
    print(row(f"hm_iou_{SAMPLES}", lesions, mue_hm_iou, loop_hm_iou))


if __name__ == "__main__":
    main()
