import pytest
import torch

from mue.metrics.energy import (
    best_ged,
    distances,
    empirical,
    energy_distance,
    ged,
    ged_n,
    rater_disagreement,
    sample_indices,
    sampled_energy_distance,
)
from mue.metrics.overlap import iou_distance


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masks(b: int, k: int, c: int = 1, seed: int = 0) -> torch.Tensor:
    """Small masks, many of them empty."""
    return torch.rand(b, k, c, 2, 3, generator=seeded(seed)) > 0.75


def weights(b: int, k: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(b, k, generator=seeded(seed)).softmax(dim=1)


def uniform(b: int, k: int) -> torch.Tensor:
    return torch.full((b, k), 1 / k)


LESION = torch.tensor([[[[[True, True, False]]]]])
OTHER = torch.tensor([[[[[False, False, True]]]]])
EMPTY = torch.zeros_like(LESION)


def test_one_hypothesis_that_is_one_of_four_disjoint_raters():
    ys = torch.eye(4, dtype=torch.bool).reshape(1, 4, 1, 2, 2)
    # E d(S, Y) = 3/4, E d(S, S') = 0, E d(Y, Y') = 12/16
    assert ged(ys[:, :1], torch.ones(1, 1), ys, uniform(1, 4)).item() == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("s", "y", "distance"),
    [(EMPTY, EMPTY, 0), (LESION, LESION, 0), (EMPTY, LESION, 2), (LESION, EMPTY, 2)],
)
def test_one_hypothesis_and_one_rater(s, y, distance):
    assert ged(s, torch.ones(1, 1), y, torch.ones(1, 1)).item() == distance


def test_raters_in_doubt_about_a_lesion_by_hand():
    ys, q = torch.cat([LESION, EMPTY], dim=1), torch.tensor([[0.75, 0.25]])
    s, p = torch.cat([LESION, EMPTY], dim=1), torch.tensor([[0.5, 0.5]])
    # of two answers at distance 1 it is 2 (p - q)^2
    assert ged(s, p, ys, q).item() == pytest.approx(2 * 0.25**2)


def test_the_distance_is_its_definition():
    """Against nested loops over pairs, with several classes and weights on both sides."""
    s, ys, p, q = masks(4, 3, 2), masks(4, 5, 2, seed=1), weights(4, 3), weights(4, 5, 1)
    found = ged(s, p, ys, q)
    for b in range(4):

        def mean(a, wa, o, wo, b=b):
            total = 0.0
            for i in range(a.shape[1]):
                for j in range(o.shape[1]):
                    d = iou_distance(a[b, None, i : i + 1], o[b, None, j : j + 1]).item()
                    total += wa[b, i].item() * wo[b, j].item() * d
            return total

        expected = 2 * mean(s, p, ys, q) - mean(s, p, s, p) - mean(ys, q, ys, q)
        assert found[b].item() == pytest.approx(expected, abs=1e-6)


def test_three_matrices_give_what_the_masks_give():
    s, ys, p, q = masks(4, 3), masks(4, 5, seed=1), weights(4, 3), weights(4, 5, 1)
    sy, ss, yy = iou_distance(s, ys), iou_distance(s, s), iou_distance(ys, ys)
    torch.testing.assert_close(energy_distance(sy, ss, yy, p, q), ged(s, p, ys, q))


def test_it_is_never_negative_for_one_class():
    s, ys = masks(500, 6), masks(500, 4, seed=1)
    assert (ged(s, weights(500, 6), ys, weights(500, 4, 1)) > -1e-6).all()


def test_equal_distributions_are_at_distance_zero():
    ys, q = masks(50, 4), weights(50, 4)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(ged(ys[:, order], q[:, order], ys, q), torch.zeros(50))


def test_the_order_of_raters_and_hypotheses_is_nothing():
    s, ys, p, q = masks(20, 3), masks(20, 4, seed=1), weights(20, 3), weights(20, 4, 1)
    expected = ged(s, p, ys, q)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(ged(s, p, ys[:, order], q[:, order]), expected)
    torch.testing.assert_close(ged(s.flip(1), p.flip(1), ys, q), expected)


def test_a_hypothesis_may_be_split_into_copies():
    s, ys, p, q = masks(20, 3), masks(20, 4, seed=1), weights(20, 3), weights(20, 4, 1)
    copies = torch.cat([s, s[:, :1]], dim=1)
    shared = torch.cat([0.7 * p[:, :1], p[:, 1:], 0.3 * p[:, :1]], dim=1)
    torch.testing.assert_close(ged(copies, shared, ys, q), ged(s, p, ys, q))


@pytest.mark.parametrize("bad", [[0.6, 0.3], [1.2, -0.2], [float("nan"), 1.0]])
def test_weights_that_are_no_distribution_are_refused(bad):
    two, good = torch.cat([LESION, OTHER], dim=1), uniform(1, 2)
    with pytest.raises(ValueError, match=r"`p` must be non-negative and sum to 1 .* renormalise"):
        ged(two, torch.tensor([bad]), two, good)
    with pytest.raises(ValueError, match="`q` must be non-negative and sum to 1"):
        ged(two, good, two, torch.tensor([bad]))


def test_samples_follow_the_probabilities_and_their_scale_is_nothing():
    p = torch.tensor([[0.5, 0.3, 0.2, 0.0]])
    pick = sample_indices(p, 20_000, seeded())
    torch.testing.assert_close(empirical(pick, 4), p, atol=0.01, rtol=0)  # 3 deviations
    assert torch.equal(sample_indices(p / 2, 50, seeded()), sample_indices(p, 50, seeded()))


def test_samples_do_not_depend_on_the_size_of_the_batch():
    p, generator = weights(7, 5), seeded()
    parts = [sample_indices(part, 16, generator) for part in p.split(2)]
    assert torch.equal(torch.cat(parts), sample_indices(p, 16, seeded()))


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="number of samples, must be at least 1, got 0"):
        sample_indices(uniform(1, 2), 0, seeded())


def test_shares_of_samples_are_counted():
    pick = sample_indices(weights(6, 4), 9, seeded())
    expected = [[(row == i).sum().item() / 9 for i in range(4)] for row in pick]
    torch.testing.assert_close(empirical(pick, 4), torch.tensor(expected))


def test_sampling_shares_equals_gathering_masks():
    """Against the computation of the literature: n masks, n x n pairs, each of weight 1/n."""
    s, ys, p, q = masks(8, 5, 2), masks(8, 4, 2, seed=1), weights(8, 5), uniform(8, 4)
    pick = sample_indices(p, 16, seeded())
    sampled = torch.stack([s[b, pick[b]] for b in range(8)])
    sy, ss, yy = iou_distance(sampled, ys), iou_distance(sampled, sampled), iou_distance(ys, ys)
    expected = 2 * sy.mean((1, 2)) - ss.mean((1, 2)) - yy.mean((1, 2))
    torch.testing.assert_close(ged_n(s, p, ys, q, 16, seeded()), expected)


def test_sampling_adds_the_mean_distance_of_hypotheses_over_n():
    s, ys, p, q = masks(1, 5), masks(1, 4, seed=1), weights(1, 5), uniform(1, 4)
    spread = torch.einsum("bi,bij,bj->b", p, iou_distance(s, s), p)
    assert spread.item() > 0.3
    many = 20_000
    wide_s, wide_p, wide_ys, wide_q = (t.expand(many, *t.shape[1:]) for t in (s, p, ys, q))
    for n in (2, 8):
        found = ged_n(wide_s, wide_p, wide_ys, wide_q, n, seeded())
        bias = found.mean() - ged(s, p, ys, q)
        error = found.std() / many**0.5
        assert abs(bias - spread / n) < 4 * error


def test_many_samples_come_to_the_expectation():
    s, ys, p, q = masks(20, 5), masks(20, 4, seed=1), weights(20, 5), uniform(20, 4)
    expected = ged(s, p, ys, q)
    gap = [(ged_n(s, p, ys, q, n, seeded()) - expected).abs().mean() for n in (10, 1000, 100_000)]
    assert gap[0] > gap[1] > gap[2]
    assert gap[2] < 0.005


def test_one_seed_gives_one_number():
    s, ys, p, q = masks(20, 5), masks(20, 4, seed=1), weights(20, 5), uniform(20, 4)
    assert torch.equal(ged_n(s, p, ys, q, 16, seeded()), ged_n(s, p, ys, q, 16, seeded()))
    assert not torch.equal(ged_n(s, p, ys, q, 16, seeded()), ged_n(s, p, ys, q, 16, seeded(1)))


# --- the best that can be reached -----------------------------------------------------------------


@pytest.mark.parametrize("q", [(0.25,) * 4, (0.5, 0.3, 0.2), (1.0,)])
def test_a_model_that_knows_the_distribution_of_raters_has_the_best_ged(q):
    """20,000 cases, whose raters are samples of the model's own answers."""
    b, k = 20_000, 5
    s, p = masks(1, k, seed=3), weights(1, k, seed=4)
    pick = sample_indices(p, b * len(q), seeded(1)).view(b, len(q))
    ys, weight = s[0][pick], torch.tensor([q]).expand(b, -1)
    everywhere, prob = s.expand(b, -1, -1, -1, -1), p.expand(b, -1)
    d = iou_distance(s, s)[0]
    true = (p[0] @ d @ p[0]).expand(b)
    found = ged(everywhere, prob, ys, weight)
    torch.testing.assert_close(found.mean(), best_ged(true, weight)[0], atol=5e-3, rtol=0)
    sampled = ged_n(everywhere, prob, ys, weight, 16, seeded(2))
    torch.testing.assert_close(sampled.mean(), best_ged(true, weight, 16)[0], atol=5e-3, rtol=0)
    estimate = rater_disagreement(distances(ys, ys).yy, weight)
    if len(q) == 1:
        assert estimate.isnan().all()
    else:
        torch.testing.assert_close(estimate.mean(), true[0], atol=5e-3, rtol=0)


def test_raters_that_are_missing_do_not_count():
    yy = torch.tensor([[[0.0, 0.4, 1.0], [0.4, 0.0, 1.0], [1.0, 1.0, 0.0]]])
    q = torch.tensor([[0.5, 0.5, 0.0]])
    torch.testing.assert_close(rater_disagreement(yy, q), torch.tensor([0.4]))
    assert rater_disagreement(yy, torch.tensor([[0.0, 1.0, 0.0]])).isnan().all()


# --- from distances, where masks are no longer at hand --------------------------------------------


def test_a_metric_of_masks_is_that_of_their_distances():
    s, ys, p, q = masks(20, 5, 2), masks(20, 4, 2, seed=1), weights(20, 5), weights(20, 4, 1)
    d = distances(s, ys)
    assert torch.equal(d.energy(p, q), ged(s, p, ys, q))
    sampled = sampled_energy_distance(d, p, q, 16, seeded())
    assert torch.equal(sampled, ged_n(s, p, ys, q, 16, seeded()))
    assert torch.equal(sampled_energy_distance(d, p / 2, q, 16, seeded()), sampled)


def test_the_distances_of_the_first_answers_are_those_of_their_masks():
    s, ys = masks(20, 5), masks(20, 4, seed=1)
    first, expected = distances(s, ys).top(3), distances(s[:, :3], ys)
    for name in ("sy", "ss", "yy"):
        assert torch.equal(getattr(first, name), getattr(expected, name))
