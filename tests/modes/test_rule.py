"""The one rule that makes modes of answers."""

import pytest
import torch

from mue.modes import MIN_PROB, ModeRule, mask_distance
from mue.types import Hypotheses


@pytest.mark.parametrize("cut", [0.0, 0.3, 0.6])
def test_modes_of_a_batch_are_whole_sorted_and_exact(random_masks, cut):
    h = random_masks(32, 12)
    modes = ModeRule(cut=cut).group(h)
    d = mask_distance(h.y, h.y)
    assert (modes.prob[:, 1:] <= modes.prob[:, :-1]).all()
    torch.testing.assert_close(modes.rest, h.rest)
    assert modes.count.amax() == modes.prob.shape[1]
    assert modes.count.unique().numel() > 1
    for i in range(32):
        assert set(modes.mode[i].tolist()) == set(range(int(modes.count[i])))
        for m in range(int(modes.count[i])):
            members = (modes.mode[i] == m).nonzero().flatten()
            best = int(modes.representative[i, m])
            assert best in members
            assert torch.equal(modes.y[i, m], h.y[i, best])
            weight = h.prob[i, members]
            assert modes.prob[i, m].item() == pytest.approx(weight.sum().item(), abs=1e-7)
            cost = d[i][members][:, members] @ weight
            assert modes.spread[i, m].item() == pytest.approx((cost.min() / weight.sum()).item())


def test_one_input_does_not_depend_on_the_others_in_its_batch(random_masks):
    h = random_masks(16, 10)
    together = ModeRule().group(h)
    for i in range(16):
        alone = ModeRule().group(Hypotheses(h.y[i : i + 1], h.prob[i : i + 1], h.code[i : i + 1]))
        m = alone.prob.shape[1]
        assert torch.equal(alone.prob[0], together.prob[i, :m])
        assert not together.prob[i, m:].any()
        assert torch.equal(alone.mode[0], together.mode[i])


def test_answers_of_probability_0_are_in_no_mode(answers):
    modes = ModeRule("vectors", cut=1.0).group(answers([0.6, 0.4, 0.0, 0.0], [0.0, 5.0, 0.1, 7.0]))
    assert modes.mode[0].tolist() == [0, 1, -1, -1]
    assert modes.prob[0].tolist() == pytest.approx([0.6, 0.4])


def test_grouping_is_the_same_twice(random_masks):
    h = random_masks(16, 16)
    one, two = ModeRule().group(h), ModeRule().group(h)
    assert all(torch.equal(getattr(one, n), getattr(two, n)) for n in ("prob", "mode", "spread"))


def test_answers_below_the_least_probability_are_rest(answers):
    h = answers([0.6, 1.01 * MIN_PROB, 0.99 * MIN_PROB], [0.0, 5.0, 9.0])
    modes = ModeRule("vectors", cut=1.0).group(h)
    assert modes.mode[0].tolist() == [0, 1, -1]
    assert modes.rest.item() == pytest.approx(0.4 - 1.01 * MIN_PROB, abs=1e-6)
    assert ModeRule("vectors", cut=1.0, min_prob=0.0).group(h).count.item() == 3


def test_by_code_answers_that_are_alike_stay_apart(answers):
    h = answers([0.6, 0.4], [0.0, 0.0])
    rule = ModeRule("vectors", cut=1.0)
    assert rule.group(h).prob[0].tolist() == pytest.approx([1.0])
    assert rule.group(h, by="code").prob[0].tolist() == pytest.approx([0.6, 0.4])


def test_distances_that_are_known_are_not_computed_again(answers):
    h = answers([0.6, 0.4], [0.0, 9.0])
    modes = ModeRule("vectors", cut=1.0).group(h, distance=torch.zeros(1, 2, 2))
    assert modes.prob[0].tolist() == pytest.approx([1.0])
