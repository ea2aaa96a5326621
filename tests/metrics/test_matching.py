import math
from itertools import permutations

import pytest
import torch

from mue.metrics.energy import sample_indices
from mue.metrics.matching import hm_iou, hm_iou_n, sampled_hm_iou
from mue.metrics.overlap import iou


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masks(b: int, k: int, c: int = 1, seed: int = 0) -> torch.Tensor:
    """Small masks, many of them empty."""
    return torch.rand(b, k, c, 2, 3, generator=seeded(seed)) > 0.75


def test_the_pairing_is_the_best_of_all_and_not_greedy():
    assert hm_iou(torch.tensor([[[0.9, 0.8], [0.7, 0.1]]])).item() == pytest.approx(0.75)


def test_one_answer_is_paired_with_every_rater():
    assert hm_iou(torch.tensor([[[0.9, 0.5, 0.1]]])).item() == pytest.approx(0.5)


def test_two_answers_and_three_raters_are_paired_six_to_six():
    """By hand: an answer takes the rater it fits, and half of the third."""
    table = torch.tensor([[[1.0, 0.0, 0.4], [0.0, 1.0, 0.6]]])
    # each answer stands three times, each rater twice: 2 x 1, 2 x 1, 0.4 and 0.6
    assert hm_iou(table).item() == pytest.approx((2 + 2 + 0.4 + 0.6) / 6)


@pytest.mark.parametrize(("n", "m"), [(1, 4), (2, 3), (3, 3), (4, 2), (6, 3), (6, 2)])
def test_it_is_the_maximum_over_all_permutations(n, m):
    """Against every pairing there is, of the repeated sides."""
    size = math.lcm(n, m)
    rows = [i for i in range(n) for _ in range(size // n)]
    columns = [j for j in range(m) for _ in range(size // m)]
    table = torch.rand(3, n, m, generator=seeded())
    every = torch.stack([table[:, rows, list(order)].mean(1) for order in permutations(columns)])
    torch.testing.assert_close(hm_iou(table), every.amax(0))


def test_equal_sets_match_perfectly_in_any_order():
    ys = masks(20, 4)
    assert torch.equal(hm_iou(iou(ys.flip(1), ys)), torch.ones(20))


def test_the_order_of_either_side_is_nothing():
    table = torch.rand(10, 8, 4, generator=seeded())
    torch.testing.assert_close(hm_iou(table.flip(1)), hm_iou(table))
    torch.testing.assert_close(hm_iou(table[:, :, [2, 0, 3, 1]]), hm_iou(table))


def test_repeating_the_answers_changes_nothing():
    table = torch.rand(10, 3, 4, generator=seeded())
    torch.testing.assert_close(hm_iou(table.repeat(1, 2, 1)), hm_iou(table))


def test_empty_masks_agree():
    empty, full = torch.zeros(1, 1, 1, 2, 2).bool(), torch.ones(1, 1, 1, 2, 2).bool()
    one, raters = torch.ones(1, 1), torch.cat([empty, empty, empty, full], dim=1)
    assert hm_iou_n(empty, one, raters[:, :3], 16, seeded()).item() == 1
    assert hm_iou_n(empty, one, raters, 16, seeded()).item() == pytest.approx(0.75)
    assert hm_iou_n(full, one, raters, 16, seeded()).item() == pytest.approx(0.25)


@pytest.mark.parametrize("n", [1, 6, 16])
def test_sampling_rows_equals_gathering_masks(n):
    """Against the masks themselves, sampled and compared."""
    s, ys = masks(8, 5, 2), masks(8, 4, 2, seed=1)
    p = torch.rand(8, 5, generator=seeded()).softmax(dim=1)
    pick = sample_indices(p, n, seeded())
    sampled = torch.stack([s[b, pick[b]] for b in range(8)])
    torch.testing.assert_close(hm_iou_n(s, p, ys, n, seeded()), hm_iou(iou(sampled, ys)))


def test_raters_of_weight_0_are_left_out():
    """The first input has two raters, the second three: as if each were alone."""
    table = torch.rand(2, 4, 3, generator=seeded())
    q = torch.tensor([[0.5, 0.0, 0.5], [0.2, 0.3, 0.5]])
    expected = torch.cat([hm_iou(table[:1, :, [0, 2]]), hm_iou(table[1:])])
    torch.testing.assert_close(hm_iou(table, q), expected)


def test_a_metric_of_masks_is_that_of_their_overlap():
    s, ys = masks(8, 5, 2), masks(8, 4, 2, seed=1)
    p = torch.rand(8, 5, generator=seeded()).softmax(dim=1)
    q = torch.tensor([0.5, 0.25, 0.25, 0.0]).expand(8, 4)
    expected = hm_iou_n(s, p, ys, 16, seeded(), q)
    assert torch.equal(sampled_hm_iou(iou(s, ys), p, q, 16, seeded()), expected)
    assert torch.equal(sampled_hm_iou(iou(s, ys), p / 2, q, 16, seeded()), expected)
