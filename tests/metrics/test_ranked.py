import math

import pytest
import torch

from mue.metrics.ranked import (
    covered_share,
    mode_shares,
    modes_for,
    outside_share,
    probability_before,
    ranked_before,
    rater_modes,
    up_to,
)


def random_case(seed: int = 0, b: int = 12, k: int = 7, r: int = 4, m: int = 3):
    g = torch.Generator().manual_seed(seed)
    mode = torch.randint(-1, m, (b, k), generator=g)
    prob = torch.rand(b, m, generator=g).softmax(dim=1).sort(dim=1, descending=True).values
    return torch.rand(b, k, r, generator=g), mode, prob


def test_a_rater_is_in_the_mode_of_the_answer_nearest_to_theirs():
    """Against loops over inputs, raters and answers."""
    iou, mode, _ = random_case()
    found = rater_modes(iou, mode, 0.7)
    for b, row in enumerate(iou.tolist()):
        for r in range(4):
            best = max((row[a][r], int(mode[b, a])) for a in range(7) if mode[b, a] >= 0)
            assert found[b, r] == (best[1] if best[0] >= 0.7 else -1)
    assert (found == -1).any()


def test_an_answer_in_no_mode_is_nobodys_however_far_the_others_are():
    far = 1 - torch.tensor([[[4.0], [5.0]]])  # as distances of vectors are
    assert rater_modes(far, torch.tensor([[-1, 0]]), 1 - 6.0).tolist() == [[0]]


def test_the_shares_of_the_modes_and_of_no_mode_are_everybody():
    iou, mode, prob = random_case()
    q = torch.rand(12, 4, generator=torch.Generator().manual_seed(1)).softmax(dim=1)
    home = rater_modes(iou, mode, 0.9)
    share = mode_shares(home, q, prob.shape[1])
    outside = (q * (home < 0)).sum(dim=1)
    torch.testing.assert_close(share.sum(dim=1) + outside, torch.ones(12))


def test_modes_for_a_share_are_as_many_as_reach_it():
    prob = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.39, 0.11], [0.4, 0.3, 0.0]])
    assert modes_for(prob, 0.9).tolist() == [1, 3, 2]


def test_a_rater_reads_down_to_the_first_mode_with_an_answer_like_theirs():
    """Against loops."""
    iou, mode, prob = random_case(2)
    found = ranked_before(iou, mode, prob, 0.8)
    for b in range(12):
        for r in range(4):
            like = [int(mode[b, a]) for a in range(7) if mode[b, a] >= 0 and iou[b, a, r] >= 0.8]
            expected = prob[b, : min(like)].sum().item() if like else math.inf
            assert found[b, r].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("at_least", [0.5, 0.8])
def test_a_rater_is_covered_by_any_answer_that_is_like_theirs(at_least):
    """Against loops over inputs, answers and raters."""
    iou, _, _ = random_case(3)
    q = torch.rand(12, 4, generator=torch.Generator().manual_seed(1)).softmax(dim=1)
    for b, found in enumerate(covered_share(iou[:, :2], q, at_least).tolist()):
        like = [max(iou[b, 0, r].item(), iou[b, 1, r].item()) >= at_least for r in range(4)]
        expected = sum(w for w, there in zip(q[b].tolist(), like, strict=True) if there)
        assert found == pytest.approx(expected)


def test_an_overlap_of_exactly_as_much_as_asked_covers():
    iou = torch.tensor([[[0.75, 0.5]]])
    assert covered_share(iou, None, 0.75).tolist() == [0.5]
    assert covered_share(iou, None).tolist() == [1]


def test_the_raters_in_no_mode_by_hand():
    home, q = torch.tensor([[-1, 0, 2, -1]]), torch.tensor([[0.5, 0.25, 0.125, 0.125]])
    assert outside_share(home, q).item() == 0.625
    assert outside_share(home).item() == 0.5


def test_modes_are_shown_while_no_more_than_the_limit_is_before_them():
    """By hand: 0, 1/2 and 3/4 are before them; a mode of probability 0 is none."""
    prob = torch.tensor([[0.5, 0.25, 0.25, 0.0]])
    assert up_to(prob, 0.0).tolist() == [[True, False, False, False]]
    assert up_to(prob, 0.5).tolist() == [[True, True, False, False]]
    assert up_to(prob, 1.0).tolist() == [[True, True, True, False]]
    assert probability_before(prob).tolist() == [[0, 0.5, 0.75, 1]]


def test_an_answer_of_exactly_the_overlap_asked_for_is_a_raters():
    iou, mode, prob = torch.tensor([[[0.75]]]), torch.tensor([[0]]), torch.ones(1, 1)
    assert rater_modes(iou, mode, 0.75).tolist() == [[0]]
    assert rater_modes(iou, mode, 0.8).tolist() == [[-1]]
    assert ranked_before(iou, mode, prob, 0.75).tolist() == [[0]]
    assert ranked_before(iou, mode, prob, 0.8).tolist() == [[math.inf]]
