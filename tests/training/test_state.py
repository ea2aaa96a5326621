import math

import pytest
import torch

from mue.training.state import Best, Training

CPU = torch.device("cpu")


def test_the_best_weights_are_the_first_of_the_lowest_score():
    weights = {"w": torch.zeros(2)}
    best = Best(weights)
    assert (best.score, best.step, best.since) == (math.inf, 0, 0)
    found = []
    for step, score in enumerate([0.5, 0.3, 0.4, 0.3, 0.2, math.nan], start=1):
        weights["w"].fill_(step)
        best.update_(score, step, weights)
        found.append((int(best.step), best.weights["w"][0].item(), int(best.since)))
    assert found == [(1, 1, 0), (2, 2, 0), (2, 2, 1), (2, 2, 2), (5, 5, 0), (5, 5, 1)]
    assert best.score == 0.2


def test_the_average_is_exported_until_there_is_a_validation(tiny):
    training = Training(tiny("exact", ema=0.9, validate_every=2), CPU)
    assert training.best is not None
    assert training.export() is training.ema
    training.best.update_(0.5, 2, training.ema)
    assert training.export() is training.best.weights
    assert training.export().keys() == training.ema.keys()


@pytest.mark.parametrize(("patience", "out"), [(0, [False] * 4), (2, [False, False, True, True])])
def test_patience_is_out_after_as_many_validations_without_a_better_one(tiny, patience, out):
    training = Training(tiny("exact", validate_every=1, patience=patience), CPU)
    assert training.best is not None
    found = []
    for step, score in enumerate([0.3, 0.4, 0.3, 0.5], start=1):
        training.best.update_(score, step, training.ema)
        found.append(training.out_of_patience)
    assert found == out


def test_without_validation_nothing_is_kept(tiny):
    training = Training(tiny("exact"), CPU)
    assert training.best is None
    assert not training.out_of_patience
