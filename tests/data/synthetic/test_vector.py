import math

import pytest
import torch

from mue.data.synthetic.vector import KINDS, NOISE, Rotations

RADIUS = {"near": 1, "middle": 2, "far": 3}


@pytest.fixture(scope="module")
def samples():
    """Pairs and cases of the same items, and which turn each pair took."""
    rotations, index = Rotations(seed=2), torch.arange(6000)
    pair, case = rotations.pair(index), rotations.case(index)
    return pair, case, (case.ys - pair.y).norm(dim=2).argmin(dim=1)


def test_the_modes_are_the_point_turned_by_thirds(samples):
    _, case, _ = samples
    for x, ys, group in zip(case.x[:50], case.ys[:50], case.group[:50], strict=True):
        angle = math.atan2(x[1], x[0])
        for turn, y in enumerate(ys.tolist()):
            at = angle + turn * 2 * math.pi / 3
            expected = [RADIUS[group] * math.cos(at), RADIUS[group] * math.sin(at)]
            assert y == pytest.approx(expected, abs=1e-5)


def test_a_case_is_consistent_with_its_pair(samples):
    pair, case, turn = samples
    assert torch.equal(case.x, pair.x)
    for q, group in zip(case.q[:50], case.group[:50], strict=True):
        assert q.tolist() == pytest.approx(KINDS[group])
    assert len(set(case.id)) == 6000
    sampled_prob = case.q.gather(1, turn[:, None])
    assert (sampled_prob > 0).all()  # a turn that cannot be is never sampled


def test_points_are_turned_as_often_as_their_radius_says(samples):
    _, case, turn = samples
    for name, prob in KINDS.items():
        mine = turn[torch.tensor([group == name for group in case.group])]
        assert abs(len(mine) - 2000) < 4 * (6000 / 3 * 2 / 3) ** 0.5
        for m, p in enumerate(prob):
            share = (mine == m).float().mean().item()
            assert abs(share - p) <= 4 * (p * (1 - p) / len(mine)) ** 0.5, (name, m)


def test_answers_deviate_from_their_mode_by_the_noise(samples):
    pair, case, turn = samples
    gap = pair.y[:, 0] - case.ys[torch.arange(6000), turn]
    n = gap.numel()
    assert abs(gap.mean().item()) < 4 * NOISE / n**0.5
    assert abs(gap.std().item() - NOISE) < 4 * NOISE / (2 * n) ** 0.5


def test_an_item_is_the_same_in_any_batch():
    rotations, index = Rotations(seed=7), torch.randperm(1000)[:20]
    pair, case = rotations.pair(index), rotations.case(index)
    for place, i in enumerate(index):
        alone = rotations.pair(i[None])
        torch.testing.assert_close(alone.x[0], pair.x[place], rtol=0, atol=1e-6)
        torch.testing.assert_close(alone.y[0], pair.y[place], rtol=0, atol=1e-6)
        assert rotations.case(i[None]).id[0] == case.id[place]
