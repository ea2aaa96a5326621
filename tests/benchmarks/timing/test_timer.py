import pytest
import torch

from timing.timer import Budget, Timing, interleave, measure_limits

CPU = torch.device("cpu")


def test_the_median_is_reported_and_the_spread_is_half_the_interquartile_range():
    timing = Timing((1.0, 2.0, 3.0, 4.0, 100.0))
    assert timing.median == 3
    assert timing.spread == pytest.approx((4 - 2) / 2 / 3)
    assert Timing((2.0,)).spread == 0
    assert timing.summary() == {"ms": 3000, "spread": pytest.approx(1 / 3), "repeats": 5}


def test_a_time_that_was_never_taken_is_refused():
    with pytest.raises(ValueError, match="at least one time, got none"):
        Timing(())
    with pytest.raises(ValueError, match="`repeats` must be at least 1, got 0"):
        Budget(repeats=0)


def test_jobs_take_turns():
    order: list[str] = []
    jobs = {name: lambda name=name: order.append(name) for name in "ab"}
    calls: list[tuple[int, int]] = []
    found = interleave(jobs, CPU, Budget(2, 3, min_seconds=0.0), lambda *at: calls.append(at))
    assert "".join(order) == "aabb" + "ab" * 3
    assert {name: len(t.seconds) for name, t in found.items()} == {"a": 3, "b": 3}
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_slow_jobs_are_repeated_less_often_but_three_times():
    calls: list[int] = []
    found = interleave(
        {"a": lambda: calls.append(0)}, CPU, Budget(1, 9, min_seconds=0.0, max_seconds=0.0)
    )
    assert len(calls) == 1 + 3
    assert len(found["a"].seconds) == 3


def test_limits_are_positive_and_leave_the_precision_as_it_was():
    before = torch.get_float32_matmul_precision()
    limits = measure_limits(CPU, torch.float32, megabytes=1, side=16)
    assert limits.bandwidth > 0
    assert limits.peak > 0
    assert torch.get_float32_matmul_precision() == before
