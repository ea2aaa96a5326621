import math

import pytest
import torch

from mue.metrics.ranked import mode_shares, modes_for, ranked_before, rater_modes


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
