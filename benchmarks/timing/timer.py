"""Times, taken in turn so that drift of the machine cancels."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from timing.floor import Limits

Job = Callable[[], object]
Progress = Callable[[str, int, int], None]
"""Called with what is measured, how much of it is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long something took, again and again.

    Attributes:
        seconds: One call, in each repeat.
    """

    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse a time that was never taken."""
        if not self.seconds:
            raise ValueError("`seconds` must hold at least one time, got none")

    @property
    def median(self) -> float:
        """The time that is reported."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the interquartile range, as a share of the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / self.median

    def summary(self) -> dict[str, Any]:
        """As `bench.json` keeps it."""
        return {"ms": 1e3 * self.median, "spread": self.spread, "repeats": len(self.seconds)}


@dataclass(frozen=True, slots=True)
class Budget:
    """How much time a measurement may take.

    Attributes:
        warmup: Calls before the first that counts: compilation and autotuning end there.
        repeats: Times that are taken of each job.
        min_seconds: Of one repeat; short jobs are called more than once.
        max_seconds: Of all repeats; slow jobs are repeated less often, but three times.
    """

    warmup: int = 3
    repeats: int = 7
    min_seconds: float = 0.2
    max_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Refuse to measure nothing."""
        for name in ("warmup", "repeats"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}")


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def interleave(
    jobs: Mapping[str, Job],
    device: torch.device,
    budget: Budget,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Timing]:
    """Time several jobs in turn, a b c a b c: what slows the machine for a while slows them all."""
    calls: dict[str, int] = {}
    whole = 0.0
    for name, job in jobs.items():
        for _ in range(budget.warmup - 1):
            job()
        once = _seconds(job, 1, device)
        calls[name] = max(1, min(1000, round(budget.min_seconds / max(once, 1e-6))))
        whole += once * calls[name]
    repeats = min(budget.repeats, max(3, int(budget.max_seconds / max(whole, 1e-6))))
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for i in range(repeats):
        for name, job in jobs.items():
            taken[name].append(_seconds(job, calls[name], device))
        if progress is not None:
            progress(i + 1, repeats)
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}


def _seconds(job: Job, calls: int, device: torch.device) -> float:
    synchronize(device)
    start = perf_counter()
    for _ in range(calls):
        job()
    synchronize(device)
    return (perf_counter() - start) / calls


def measure_limits(
    device: torch.device, dtype: torch.dtype, *, megabytes: int | None = None, side: int = 0
) -> Limits:
    """The bandwidth of a large copy, and the peak of a large matrix product in that precision.

    Float32 on a GPU is measured as convolutions compute it there by default: in TF32. `megabytes`
    and `side` are the size of the copy and of the matrices.
    """
    gpu = device.type == "cuda"
    megabytes = (2048 if gpu else 256) if megabytes is None else megabytes
    side = side or (8192 if gpu else 2048)
    source = torch.ones(megabytes << 18, device=device)
    target = torch.empty_like(source)
    a = torch.ones(side, side, device=device, dtype=dtype)
    out = torch.empty_like(a)
    before = torch.get_float32_matmul_precision()
    if gpu:
        torch.set_float32_matmul_precision("high")
    try:
        jobs = {
            "copy": lambda: target.copy_(source),
            "product": lambda: torch.mm(a, a, out=out),
        }
        found = interleave(jobs, device, Budget(warmup=2, repeats=5, min_seconds=0.05))
    finally:
        torch.set_float32_matmul_precision(before)
    moved = 2 * source.numel() * source.element_size()
    copy, product = (min(found[name].seconds) for name in ("copy", "product"))
    return Limits(bandwidth=moved / copy, peak=2 * side**3 / product)
