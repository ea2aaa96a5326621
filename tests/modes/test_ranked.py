"""Modes by their probability."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from mue.modes import ModeRule, modes_of, ranking


def gap(a: Tensor, b: Tensor) -> Tensor:
    """Distance of numbers."""
    return (a[:, :, None, 0] - b[:, None, :, 0]).abs()


def test_a_tree_can_be_cut_at_any_level_without_another(random_masks):
    h = random_masks(8, 9)
    modes = ModeRule(cut=0.5).group(h)
    counts = []
    for cut in (0.0, 0.25, 0.5, 0.75, 1.0):
        other, again = modes.at(cut), ModeRule(cut=cut).group(h)
        assert torch.equal(other.prob, again.prob)
        assert torch.equal(other.mode, again.mode)
        counts.append(other.count)
    assert all((fine >= coarse).all() for fine, coarse in itertools.pairwise(counts))
    assert (counts[-1] == 1).all()
    with pytest.raises(ValueError, match="`cut` must be a distance of at least 0, got nan"):
        modes.at(math.nan)


def test_a_mode_is_the_sum_of_its_members_and_may_overtake_a_single_answer(answers):
    modes = ModeRule("vectors", cut=1.0).group(answers([0.4, 0.35, 0.15], [0.0, 9.0, 9.2]))
    assert modes.prob[0].tolist() == pytest.approx([0.5, 0.4])
    assert modes.mode[0].tolist() == [1, 0, 0]
    assert modes.rest.item() == pytest.approx(0.1)
    assert modes.representative[0].tolist() == [1, 0]
    assert modes.spread[0].tolist() == pytest.approx([0.2 * 0.15 / 0.5, 0], abs=1e-6)
    assert modes.mean()[0].flatten().tolist() == pytest.approx([(0.35 * 9 + 0.15 * 9.2) / 0.5, 0])


def test_the_representative_has_the_least_expected_distance_to_the_other_members(answers):
    h = answers([0.3, 0.25, 0.25, 0.2], [0.0, 0.4, 0.5, 0.9])
    modes = ModeRule("vectors", cut=10.0).group(h)
    expected = gap(h.y, h.y)[0] @ h.prob[0]
    assert modes.representative.item() == expected.argmin() == 1
    assert modes.y.item() == pytest.approx(0.4)
    assert modes.spread.item() == pytest.approx(expected.min().item())


def test_the_first_modes_are_kept_up_to_a_limit_and_the_others_are_rest(answers):
    modes = ModeRule("vectors", cut=1.0).group(answers([0.5, 0.3, 0.1, 0.05], [0.0, 5.0, 9.0, 5.1]))
    assert modes.prob[0].tolist() == pytest.approx([0.5, 0.35, 0.1])
    for limit, count in ((0.0, 1), (0.49, 1), (0.6, 2), (0.9, 3)):
        kept = modes.first(limit, coverage=0.9)
        assert kept.count.item() == count == kept.prob.shape[1]
        assert kept.coverage == 0.9
        assert kept.rest.item() == pytest.approx(1 - modes.prob[0, :count].sum().item())
        assert (kept.mode[0] >= 0).sum() == (modes.mode[0] < count).sum()
    assert modes.top(2).prob[0].tolist() == pytest.approx([0.5, 0.35])
    with pytest.raises(ValueError, match="`k` must be at least 1, got 0"):
        modes.top(0)


def test_entropy_of_modes_is_at_most_that_of_their_answers(random_masks):
    h = random_masks(16, 10)
    assert (ModeRule().group(h).entropy() <= h.entropy() + 1e-6).all()
    tree = ModeRule().group(h).tree
    alone = modes_of(h.y, h.prob, h.code, tree, 0.0).cpu()
    assert (alone.entropy() <= h.entropy() + 1e-6).all()


def test_a_ranking_has_as_many_places_as_answers_the_last_at_probability_0(answers):
    h = answers([0.4, 0.35, 0.15], [0.0, 9.0, 9.2])
    modes = ModeRule("vectors", cut=1.0).group(h)
    found = ranking(modes.tree, h.prob, 1.0)
    assert found.prob[0].tolist() == pytest.approx([0.5, 0.4, 0])
    assert found.spread[0, 2] == 0
    again = modes_of(h.y, h.prob, h.code, modes.tree, 1.0, found)
    assert torch.equal(again.prob, modes.prob)
    assert torch.equal(again.y, modes.y)


def test_each_answer_is_a_member_of_its_mode_alone(answers):
    modes = ModeRule("vectors", cut=1.0).group(answers([0.6, 0.4, 0.0], [0.0, 5.0, 0.1]))
    assert modes.member[0].tolist() == [[True, False], [False, True], [False, False]]


def test_by_code_every_answer_stands_alone_in_the_order_of_its_probability(answers):
    modes = ModeRule("vectors", cut=1.0).group(answers([0.4, 0.35, 0.15], [0.0, 9.0, 9.2]))
    alone = modes.by_code()
    assert alone.prob[0].tolist() == pytest.approx([0.4, 0.35, 0.15])
    assert alone.y.flatten().tolist() == pytest.approx([0.0, 9.0, 9.2])
    assert not alone.spread.any()
