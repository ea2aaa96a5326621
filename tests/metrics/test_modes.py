import math

import pytest
import torch

from mue.metrics.modes import distinct, entropy, mode_mae, mode_probabilities, mode_tv, nearest_mode


def test_each_answer_counts_for_its_nearest_mode():
    """Against a loop over images."""
    torch.manual_seed(0)
    s, ys = torch.randn(3, 7, 1, 2, 2), torch.randn(3, 4, 1, 2, 2)
    p = torch.rand(3, 7).softmax(dim=1)
    expected = torch.zeros(3, 4)
    for i in range(3):
        for j in range(7):
            gaps = [(s[i, j] - y).square().sum().item() for y in ys[i]]
            nearest = gaps.index(min(gaps))
            assert nearest_mode(s, ys)[i, j] == nearest
            expected[i, nearest] += p[i, j]
    torch.testing.assert_close(mode_probabilities(s, p, ys), expected)


def test_total_variation_by_hand():
    p, q = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.1, 0.4, 0.5]])
    assert mode_tv(p, q).item() == pytest.approx(0.4)  # what has to move: 0.1 + 0.3
    assert mode_tv(q, p).item() == pytest.approx(0.4)
    assert mode_mae(p, q).item() == pytest.approx((0.4 + 0.1 + 0.3) / 3)


def test_disjoint_distributions_are_at_total_variation_one():
    assert mode_tv(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])).item() == 1


def test_mass_that_was_not_decoded_counts_as_wrong():
    q = torch.tensor([[0.6, 0.4]])
    assert mode_tv(q, q).item() == pytest.approx(0, abs=1e-6)
    # The 0.4 that is missing must move from nowhere to the second mode.
    assert mode_tv(torch.tensor([[0.6, 0.0]]), q).item() == pytest.approx(0.4)
    assert mode_tv(torch.zeros(1, 2), q).item() == pytest.approx(1)


def test_a_true_answer_of_probability_0_is_nobodys_nearest():
    s, ys = torch.tensor([[[0.0], [1.0]]]), torch.tensor([[[0.0], [0.4], [1.0]]])
    p, q = torch.tensor([[0.75, 0.25]]), torch.tensor([[0.0, 0.5, 0.5]])
    assert mode_probabilities(s, p, ys).tolist() == [[0.75, 0, 0.25]]
    assert mode_probabilities(s, p, ys, q).tolist() == [[0, 0.75, 0.25]]


def test_equal_true_answers_are_one():
    """By hand: raters 1, 2 and 4 agree, the fifth is missing and as empty as the third."""
    ys = torch.tensor([[[1.0], [1.0], [0.0], [1.0], [0.0]]])
    q = torch.tensor([[0.25, 0.25, 0.375, 0.125, 0.0]])
    true = distinct((ys - ys.mT).abs(), q)
    assert true.tolist() == [[0.625, 0, 0.375, 0, 0]]
    p = mode_probabilities(torch.tensor([[[0.9], [0.1]]]), torch.tensor([[0.6, 0.4]]), ys, true)
    assert mode_tv(p, true).item() == pytest.approx(0.025)


def test_a_missing_rater_in_front_takes_no_probability():
    true = distinct(torch.zeros(1, 2, 2), torch.tensor([[0.0, 1.0]]))
    assert true.tolist() == [[0, 1]]


def test_what_is_missing_to_1_counts_as_one_more_answer():
    prob = torch.tensor([[0.5, 0.25], [0.5, 0.5], [1.0, 0.0]])
    expected = [0.5 * math.log(2) + 2 * 0.25 * math.log(4), math.log(2), 0]
    assert entropy(prob).tolist() == pytest.approx(expected)


def test_total_variation_is_a_distance_of_distributions():
    g = torch.Generator().manual_seed(0)
    p, q, r = (torch.rand(200, 5, generator=g).softmax(dim=1) for _ in range(3))
    torch.testing.assert_close(mode_tv(p, q), mode_tv(q, p))
    torch.testing.assert_close(mode_tv(p, p), torch.zeros(200))
    assert (mode_tv(p, q) <= mode_tv(p, r) + mode_tv(r, q) + 1e-6).all()
    assert (mode_tv(p, q) <= 1).all()


def test_errors_of_modes_are_their_definitions():
    """Against loops over inputs and modes, with a rest."""
    g = torch.Generator().manual_seed(0)
    p, q = (torch.rand(20, 4, generator=g).softmax(dim=1) for _ in range(2))
    p = 0.8 * p
    for b in range(20):
        gaps = [abs(p[b, i].item() - q[b, i].item()) for i in range(4)]
        assert mode_tv(p, q)[b].item() == pytest.approx((sum(gaps) + 0.2) / 2, abs=1e-6)
        assert mode_mae(p, q)[b].item() == pytest.approx(sum(gaps) / 4, abs=1e-6)
