import pytest
import torch

from mue.config.presets import preset
from mue.models.build import build_network
from mue.models.heads import Heads
from mue.types import Hypotheses
from timing.answering import (
    AnswerJobs,
    measure_answers,
    measure_sides,
    plain_unet,
    with_codes,
)
from timing.floor import Limits
from timing.timer import Budget

CPU = torch.device("cpu")
LIMITS = Limits(1e9, 1e10)
SHORT = Budget(warmup=1, repeats=2, min_seconds=0.0)


@pytest.mark.parametrize("name", ["toy", "toy-vq"])
def test_every_way_gives_the_same_answers(name: str):
    jobs = AnswerJobs(with_codes(preset(name), 7), 16, CPU)
    state = jobs.predictor.network.state_dict()
    for other in (jobs.channels_last, jobs.contiguous):
        other.load_state_dict(state)
    ours = jobs.ours(5)()
    assert isinstance(ours, Hypotheses)
    for way in (jobs.naive(5)(), jobs.one_by_one(5)()):
        torch.testing.assert_close(way, ours.y, atol=1e-5, rtol=1e-4)


def test_a_network_gets_as_many_codes_as_are_asked_for():
    config = preset("toy")
    assert with_codes(config, 64).codebook.size == 64
    assert with_codes(config, 2) == config


def test_the_plain_unet_has_the_levels_and_the_normalization_of_the_model():
    config = plain_unet(preset("lidc-exact"))
    assert config.model.levels == preset("lidc-exact").model.levels
    assert config.model.norm == "group"
    assert isinstance(build_network(config), Heads)


def test_answers_are_timed_for_each_k_and_for_a_plain_unet():
    found = measure_answers(CPU, ["toy-vq"], (1, 2), SHORT, side=16)
    rows = [answers.summary(LIMITS, 4) for answers in found]
    assert [(r["k"], r["side"]) for r in rows] == [(1, 16), (2, 16)]
    for row in rows:
        mine = row["ours"]["ms"]
        assert row["ratio"] == pytest.approx(row["naive"]["ms"] / mine)
        assert row["one_by_one"]["ms"] > 0
        assert row["of_unet"] == pytest.approx(mine / row["unet"]["ms"])
    assert rows[1]["operations"] > rows[0]["operations"]


def test_sides_are_timed_alone():
    found = measure_sides(CPU, ["toy"], (8, 16), SHORT, k=2)
    rows = [answers.summary(LIMITS, 4) for answers in found]
    assert [(r["side"], r["k"]) for r in rows] == [(8, 2), (16, 2)]
    assert all(r["ratio"] is None and "naive" not in r for r in rows)
