import pytest
import torch

from mue.metrics.calibration import annotated, brier, ece, presence, reliability


def some(*present: bool) -> torch.Tensor:
    """One input whose masks are empty or have a pixel in the second of two classes."""
    masks = torch.zeros(1, len(present), 2, 2, 2, dtype=torch.bool)
    masks[0, :, 1, 1, 0] = torch.tensor(present)
    return masks


def test_presence_is_the_weight_of_masks_that_are_not_empty():
    p = torch.tensor([[0.5, 0.3, 0.2]])
    assert presence(some(True, False, True), p).item() == pytest.approx(0.7)
    assert presence(some(False, False, False), p).item() == 0
    assert presence(some(True, True, True), p).item() == pytest.approx(1)


def test_presence_is_its_definition():
    """Against loops over inputs and masks."""
    torch.manual_seed(0)
    s, p = torch.rand(20, 4, 2, 2, 2) > 0.85, torch.rand(20, 4).softmax(dim=1)
    expected = [sum(p[b, i].item() for i in range(4) if s[b, i].sum() > 0) for b in range(20)]
    torch.testing.assert_close(presence(s, p), torch.tensor(expected))


def test_one_rater_of_four_drew_a_lesion():
    assert annotated(some(False, True, False, False), torch.full((1, 4), 0.25)).item() == 0.25


def test_brier_by_hand():
    p, share = torch.tensor([0.0, 1.0, 0.5, 0.8]), torch.tensor([0.0, 0.0, 0.75, 0.5])
    torch.testing.assert_close(brier(p, share), torch.tensor([0, 1, 0.0625, 0.09]))


def test_brier_is_the_part_of_the_score_against_one_rater_that_can_be_helped():
    p, share = torch.tensor([0.3]), torch.tensor([0.75])
    against_one = share * (1 - p) ** 2 + (1 - share) * p**2
    torch.testing.assert_close(against_one, brier(p, share) + share * (1 - share))


def test_bins_by_hand():
    p = torch.tensor([0.0, 0.2, 0.25, 0.5, 0.9, 1.0])
    share = torch.tensor([0.0, 1.0, 0.5, 0.25, 1.0, 0.5])
    r = reliability(p, share, bins=4)
    assert r.count.tolist() == [2, 1, 1, 2]  # an edge belongs to the bin above, 1 to the last
    torch.testing.assert_close(r.predicted, torch.tensor([0.1, 0.25, 0.5, 0.95]))
    torch.testing.assert_close(r.share, torch.tensor([0.5, 0.5, 0.25, 0.75]))
    expected = (2 * 0.4 + 0.25 + 0.25 + 2 * 0.2) / 6
    assert ece(p, share, bins=4).item() == pytest.approx(expected)


def test_an_empty_bin_has_no_mean_and_no_weight():
    p, share = torch.tensor([0.1, 0.9]), torch.tensor([0.2, 0.9])
    r = reliability(p, share, bins=3)
    assert r.count.tolist() == [1, 0, 1]
    assert r.predicted.isnan().tolist() == r.share.isnan().tolist() == [False, True, False]
    assert ece(p, share, bins=3).item() == pytest.approx(0.05)


def test_the_calibration_error_is_its_definition():
    """Against a loop over bins."""
    torch.manual_seed(0)
    p, share = torch.rand(200), torch.randint(0, 5, (200,)) / 4
    expected = 0.0
    for i in range(15):
        members = [j for j in range(200) if min(int(p[j].item() * 15), 14) == i]
        if members:
            gap = sum(p[j].item() for j in members) - sum(share[j].item() for j in members)
            expected += abs(gap) / 200
    assert ece(p, share).item() == pytest.approx(expected, abs=1e-6)


def test_a_forecast_that_is_right_on_average_is_calibrated():
    share = torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert ece(torch.full((4,), 0.5), share).item() == 0
    assert ece(share, share).item() == 0
    assert ece(1 - share, share).item() == 1


def test_in_one_bin_only_the_means_count():
    torch.manual_seed(0)
    p, share = torch.rand(50), torch.rand(50)
    expected = (p.mean() - share.mean()).abs()
    torch.testing.assert_close(ece(p, share, bins=1), expected)


def test_a_sum_of_probabilities_that_rounds_above_one_is_one():
    assert reliability(torch.tensor([1.0000002]), torch.tensor([1.0])).count[-1] == 1


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match="`p` must be a probability"):
        reliability(torch.tensor([p]), torch.tensor([1.0]))


def test_no_bins_are_refused():
    with pytest.raises(ValueError, match="`bins` must be at least 1, got 0"):
        ece(torch.tensor([0.5]), torch.tensor([1.0]), bins=0)
