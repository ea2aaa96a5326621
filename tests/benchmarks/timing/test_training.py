from collections.abc import Callable

import pytest
import torch

from mue.data.prepared.dataset import Slices
from timing.floor import Limits
from timing.timer import Budget
from timing.training import Workload, measure_training, workload_config, workload_source, workloads

CPU = torch.device("cpu")
LIMITS = {torch.float32: Limits(1e9, 1e10)}


def test_the_accelerator_takes_the_batches_of_the_paper_and_a_processor_smaller_ones():
    fast = workloads(torch.device("cuda"))
    assert fast[:2] == [Workload("guess", 256), Workload("lidc", 64, 128)]
    assert fast[2:] == [Workload("lidc-exact", 64, 128)]
    sizes = {c.preset: c.batch for c in workloads(CPU)}
    assert sizes == {"guess": 32, "lidc": 4, "lidc-exact": 4}
    assert all(q.batch < sizes[q.preset] for q in workloads(CPU, quick=True))


def test_a_workload_on_slices_needs_no_data():
    workload = Workload("lidc", 2, 32)
    source = workload_source(workload, workload_config(workload, CPU), CPU)
    assert isinstance(source, Slices)
    assert set(source.sizes) == {(32, 32)}


def test_both_ways_are_timed_and_the_row_follows_from_times_and_counts():
    calls: list[tuple[str, int, int]] = []

    def watch(*at: object) -> None:
        calls.append(at)  # pyright: ignore[reportArgumentType]

    note: Callable[[str, int, int], None] = watch
    budget = Budget(warmup=1, repeats=2, min_seconds=0.0)
    (found,) = measure_training(CPU, [Workload("toy-vq", 2)], budget, progress=note)
    row = found.summary(LIMITS)
    assert (row["preset"], row["batch"], row["precision"]) == ("toy-vq", 2, "float32")
    assert row["ratio"] == pytest.approx(row["naive"]["ms"] / row["ours"]["ms"])
    assert row["share"] == pytest.approx(row["floor_ms"] / row["ours"]["ms"])
    assert row["floor_ms"] == pytest.approx(1e3 * found.work.floor(LIMITS[torch.float32], 4))
    assert calls[-1] == ("toy-vq, batch 2", 2, 2)
