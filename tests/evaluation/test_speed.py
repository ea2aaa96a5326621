"""How fast a model answers."""

import itertools

import pytest
import torch
from oracle import Oracle

from mue.evaluation import speed
from mue.evaluation.speed import seconds_for, single_pass
from mue.inference.load import load
from mue.types import Hypotheses


@pytest.mark.parametrize(
    ("name", "alone"), [("exact", True), ("probunet", True), ("dropout", False), ("unet", True)]
)
def test_samples_by_dropout_take_a_pass_each(baselines, name, alone):
    assert single_pass(load(baselines[name], device="cpu")) == alone


@pytest.mark.parametrize(
    ("seconds", "calls", "fastest"),
    [
        ([9.0, 3.0, 1.0, 2.0], 4, 1.0),
        ([0.01, 0.05, 0.06, 0.04, 0.05], 5, 0.04),
        ([0.5, 9.0, 9.0, 8.0], 4, 8.0),
    ],
)
def test_the_fastest_counts_and_the_warm_up_does_not(trained, monkeypatch, seconds, calls, fastest):
    """Four calls, and more until they took a fifth of a second together."""
    clock = itertools.chain.from_iterable((0.0, took) for took in seconds)
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    h = Hypotheses(torch.zeros(1, 1, 1, 2, 2), torch.ones(1, 1), torch.zeros(1, 1).long())
    oracle = Oracle(load(trained, device="cpu"), lambda _: h)
    assert seconds_for(oracle, torch.zeros(1), 3) == fastest
    assert [k for k, _ in oracle.asked] == [3] * calls
