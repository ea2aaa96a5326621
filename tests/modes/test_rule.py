import itertools
import math

import numpy as np
import pytest
import torch
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform
from torch import Tensor

from mue.modes import ModeRule, class_distance, euclidean_distance, linkage, mask_distance, modes_of
from mue.types import Hypotheses


def gap(a: Tensor, b: Tensor) -> Tensor:
    """Distance of numbers."""
    return (a[:, :, None, 0] - b[:, None, :, 0]).abs()


def ranking(prob: list[float], y: list[float]) -> Hypotheses:
    return Hypotheses(
        torch.tensor([y])[..., None], torch.tensor([prob]), 10 + torch.arange(len(prob))[None]
    )


def random_masks(b: int, k: int, seed: int = 0) -> Hypotheses:
    """Answers that are near a few kinds of masks, with some empty ones among them."""
    g = torch.Generator().manual_seed(seed)
    kinds = torch.rand(5, 1, 6, 6, generator=g).round()
    kinds[0] = 0
    y = kinds[torch.randint(5, (b, k), generator=g)]
    y = torch.where(torch.rand(y.shape, generator=g) < 0.08, 1 - y, y)
    prob = (0.9 * torch.randn(b, k, generator=g).softmax(dim=1)).sort(dim=1, descending=True).values
    return Hypotheses(y, prob, torch.arange(k).expand(b, k))


# --- distances ------------------------------------------------------------------------------------


def test_masks_are_cut_at_one_half():
    sure, unsure = torch.tensor([0.9, 0.1]), torch.tensor([0.6, 0.5])
    assert mask_distance(sure.view(1, 1, 1, 1, 2), unsure.view(1, 1, 1, 1, 2)).item() == 0


def test_label_maps_are_compared_by_the_most_probable_class_of_each_pixel():
    a = torch.tensor([[0.4, 0.1], [0.3, 0.2], [0.3, 0.7]]).view(1, 1, 3, 1, 2)  # classes 0, 2
    b = torch.tensor([[0.4, 0.1], [0.3, 0.7], [0.3, 0.2]]).view(1, 1, 3, 1, 2)  # classes 0, 1
    assert class_distance(a, a).item() == 0
    assert class_distance(a, b).item() == 1  # where both have background they do not agree


def test_the_distance_of_label_maps_is_the_mean_over_the_classes_present_in_either():
    """By hand, of four classes: the third and fourth are in neither of the first two maps."""
    labels = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 0], [0, 1, 1, 2], [0, 0, 0, 0]])
    y = torch.eye(4)[labels].mT.reshape(1, 4, 4, 1, 4)
    d = class_distance(y, y)[0]
    assert d[0].tolist() == pytest.approx([0, 1 / 2, (0 + 1) / 2, 1])
    assert d[1].tolist() == pytest.approx([1 / 2, 0, (1 / 2 + 1) / 2, 1])
    assert d[3].tolist() == [1, 1, 1, 0]  # two empty maps agree


def test_the_iou_of_vectors_is_refused():
    with pytest.raises(ValueError, match=r"IoU distance is between images.*kind vectors"):
        ModeRule().group(ranking([0.5, 0.5], [0.0, 1.0]))


# --- the tree -------------------------------------------------------------------------------------


def slow_linkage(d: np.ndarray, p: np.ndarray, cut: float) -> list[list[int]]:
    """Join the nearest groups while they are no farther apart than the cut, by the definition."""
    groups = [[i] for i in range(len(p)) if p[i] > 0]

    def apart(a: list[int], b: list[int]) -> float:
        total = sum(p[i] * p[j] * d[i, j] for i in a for j in b)
        return total / (sum(p[i] for i in a) * sum(p[j] for j in b))

    while len(groups) > 1:
        pairs = [
            (apart(a, b), i, j) for i, a in enumerate(groups) for j, b in enumerate(groups[:i])
        ]
        least, i, j = min(pairs)
        if least > cut:
            break
        groups[j] += groups.pop(i)
    return sorted(sorted(g) for g in groups)


@pytest.mark.parametrize("cut", [0.0, 0.21, 0.41, 0.51, 0.71, 1.0])
def test_groups_are_those_of_the_definition(cut):
    h = random_masks(24, 9)
    d = mask_distance(h.y, h.y)
    noise = 1e-6 * torch.rand(d.shape, generator=torch.Generator().manual_seed(1))
    d = d + noise + noise.mT  # no two pairs are at the same distance
    group = linkage(d, h.prob).groups(cut + 1e-5)
    for i in range(24):
        found = [sorted((group[i] == g).nonzero().flatten().tolist()) for g in group[i].unique()]
        expected = slow_linkage(d[i].double().numpy(), h.prob[i].double().numpy(), cut + 1e-5)
        assert sorted(found) == expected


def test_with_equal_weights_the_heights_are_those_of_scipy():
    g = torch.Generator().manual_seed(1)
    points = torch.rand(6, 12, 3, generator=g)
    d = euclidean_distance(points, points)
    d = (d + d.mT) / 2
    tree = linkage(d, torch.full((6, 12), 1 / 12))
    for i in range(6):
        exact = d[i].double().fill_diagonal_(0).numpy()
        expected = hierarchy.linkage(squareform(exact, checks=False), "average")[:, 2]
        found = tree.height[i][tree.height[i].isfinite()].sort().values
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_a_tree_can_be_cut_at_any_level_without_another():
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


# --- the modes ------------------------------------------------------------------------------------


def test_a_mode_is_the_sum_of_its_members_and_may_overtake_a_single_answer():
    modes = ModeRule("vectors", cut=1.0).group(ranking([0.4, 0.35, 0.15], [0.0, 9.0, 9.2]))
    assert modes.prob[0].tolist() == pytest.approx([0.5, 0.4])
    assert modes.mode[0].tolist() == [1, 0, 0]
    assert modes.rest.item() == pytest.approx(0.1)
    assert modes.representative[0].tolist() == [1, 0]
    assert modes.spread[0].tolist() == pytest.approx([0.2 * 0.15 / 0.5, 0], abs=1e-6)
    assert modes.mean()[0].flatten().tolist() == pytest.approx([(0.35 * 9 + 0.15 * 9.2) / 0.5, 0])


def test_the_representative_has_the_least_expected_distance_to_the_other_members():
    h = ranking([0.3, 0.25, 0.25, 0.2], [0.0, 0.4, 0.5, 0.9])
    modes = ModeRule("vectors", cut=10.0).group(h)
    expected = gap(h.y, h.y)[0] @ h.prob[0]
    assert modes.representative.item() == expected.argmin() == 1
    assert modes.y.item() == pytest.approx(0.4)
    assert modes.spread.item() == pytest.approx(expected.min().item())


@pytest.mark.parametrize("cut", [0.0, 0.3, 0.6])
def test_modes_of_a_batch_are_whole_sorted_and_exact(cut):
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


def test_one_input_does_not_depend_on_the_others_in_its_batch():
    h = random_masks(16, 10)
    together = ModeRule().group(h)
    for i in range(16):
        alone = ModeRule().group(Hypotheses(h.y[i : i + 1], h.prob[i : i + 1], h.code[i : i + 1]))
        m = alone.prob.shape[1]
        assert torch.equal(alone.prob[0], together.prob[i, :m])
        assert not together.prob[i, m:].any()
        assert torch.equal(alone.mode[0], together.mode[i])


def test_answers_of_probability_0_are_in_no_mode():
    modes = ModeRule("vectors", cut=1.0).group(ranking([0.6, 0.4, 0.0, 0.0], [0.0, 5.0, 0.1, 7.0]))
    assert modes.mode[0].tolist() == [0, 1, -1, -1]
    assert modes.prob[0].tolist() == pytest.approx([0.6, 0.4])


def test_the_first_modes_are_kept_up_to_a_limit_and_the_others_are_rest():
    modes = ModeRule("vectors", cut=1.0).group(ranking([0.5, 0.3, 0.1, 0.05], [0.0, 5.0, 9.0, 5.1]))
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


def test_grouping_is_the_same_twice():
    h = random_masks(16, 16)
    one, two = ModeRule().group(h), ModeRule().group(h)
    assert all(torch.equal(getattr(one, n), getattr(two, n)) for n in ("prob", "mode", "spread"))


def test_entropy_of_modes_is_at_most_that_of_their_answers():
    h = random_masks(16, 10)
    assert (ModeRule().group(h).entropy() <= h.entropy() + 1e-6).all()
    tree = ModeRule().group(h).tree
    alone = modes_of(h.y, h.prob, h.code, tree, 0.0).cpu()
    assert (alone.entropy() <= h.entropy() + 1e-6).all()
