"""End to end: from nothing to probabilities that are known."""

import dataclasses
from collections import defaultdict
from statistics import mean

import pytest

import mue
from mue.data.synthetic import toy, vector
from mue.evaluation.known import ModeEvaluation


@pytest.mark.parametrize(
    ("preset", "method", "steps", "kinds", "within"),
    [
        ("toy", "exact", 800, toy.KINDS, 0.05),
        ("toy-vq", "vq", 800, toy.KINDS, 0.05),  # of 2,000
        ("vector", "exact", 2000, vector.KINDS, 0.03),
    ],
)
def test_a_preset_recovers_the_probabilities_of_its_data(
    tmp_path, preset, method, steps, kinds, within
):
    config = mue.preset(preset)
    assert config.method == method
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=steps))
    folder = mue.train(config, tmp_path / "run").folder
    evaluated = mue.evaluate(folder, inputs=500, device="cpu")
    assert evaluated.report["health"]["findings"] == []
    judged = evaluated.scores
    assert isinstance(judged, ModeEvaluation)
    found = defaultdict(list)
    for group, predicted in zip(judged.group, judged.predicted.tolist(), strict=True):
        found[group].append(predicted)
    assert set(found) == set(kinds)
    for group, true in kinds.items():
        predicted = [mean(p) for p in zip(*found[group], strict=True)]
        assert predicted == pytest.approx(true, abs=within), group
