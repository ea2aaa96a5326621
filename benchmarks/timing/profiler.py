"""Where the time of a step goes, by `torch.profiler`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity

from timing.timer import Job, synchronize

TRACE = "trace.json"
ROWS = 20


@dataclass(frozen=True, slots=True)
class Cost:
    """What one operator on inputs of one shape, or one kernel, takes of a step.

    Attributes:
        name: As the profiler calls it.
        shapes: Of its inputs; empty for a kernel.
        calls: In a step.
        ms: In a step, without the operators that it called itself.
    """

    name: str
    shapes: str
    calls: float
    ms: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The costs of a step, the highest first.

    Attributes:
        operators: By operator; on a GPU each has the time of its kernels.
        kernels: By kernel, on a GPU.
        table: The profiler's own table, over all steps.
    """

    operators: list[Cost]
    kernels: list[Cost] = field(default_factory=list[Cost])
    table: str = ""


def profile(job: Job, device: torch.device, trace: Path, steps: int, *, warmup: int = 3) -> Profile:
    """Run a job some times, write a trace for Chrome, and average what the profiler saw."""
    gpu = device.type == "cuda"
    for _ in range(warmup):
        job()
    synchronize(device)
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])],
        record_shapes=True,
        acc_events=True,
    ) as profiler:
        for _ in range(steps):
            job()
        synchronize(device)
    trace.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(trace))
    events = profiler.key_averages(group_by_input_shape=True)
    found: dict[str, list[Cost]] = {"CPU": [], "CUDA": []}
    for event in events:
        taken = event.self_device_time_total if gpu else event.self_cpu_time_total
        shapes = " ".join("x".join(map(str, s)) for s in event.input_shapes or () if s)
        cost = Cost(event.key, shapes, event.count / steps, taken / 1e3 / steps)
        found[event.device_type.name].append(cost)
    operators, kernels = (sorted(costs, key=lambda c: -c.ms) for costs in found.values())
    by = "self_cuda_time_total" if gpu else "self_cpu_time_total"
    table = events.table(sort_by=by, row_limit=ROWS, max_name_column_width=48)
    return Profile(operators, kernels, table)
