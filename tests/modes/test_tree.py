"""How answers are joined, against the definition and against SciPy."""

import numpy as np
import pytest
import torch
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from mue.modes import euclidean_distance, linkage, mask_distance, ungrouped


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
def test_groups_are_those_of_the_definition(random_masks, cut):
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


def test_the_distance_of_groups_weighs_answers_by_their_probability():
    """By hand: the first two are joined, and are (3 · 4 + 1 · 8) / 4 = 5 from the third."""
    d = torch.tensor([[[0.0, 1.0, 4.0], [1.0, 0.0, 8.0], [4.0, 8.0, 0.0]]])
    tree = linkage(d, torch.tensor([[0.6, 0.2, 0.2]]))
    assert tree.height[0].tolist() == pytest.approx([torch.inf, 1, 5])
    assert tree.parent[0].tolist() == [0, 0, 0]
    assert tree.groups(4.9).tolist() == [[0, 0, 2]]
    assert tree.groups(5.1).tolist() == [[0, 0, 0]]


def test_groups_as_far_apart_as_the_cut_are_joined():
    d = torch.tensor([[[0.0, 0.5], [0.5, 0.0]]])
    assert linkage(d, torch.tensor([[0.5, 0.5]])).groups(0.5).tolist() == [[0, 0]]


def test_an_answer_of_probability_0_is_joined_to_nothing():
    tree = linkage(torch.zeros(1, 3, 3), torch.tensor([[0.7, 0.0, 0.3]]))
    assert tree.groups(1.0).tolist() == [[0, 1, 0]]


def test_a_chain_of_answers_is_followed_to_its_end():
    """Each answer joins the group of all after it, so that 31 groups lie above the last one."""
    at = 3.0 ** torch.arange(32.0, dtype=torch.double).flip(0)
    d = (at[:, None] - at).abs()[None]
    tree = linkage(d, torch.full((1, 32), 1 / 32))
    assert tree.groups(float(at[0])).unique().tolist() == [0]


def test_a_tree_that_joins_nothing_has_each_answer_as_a_group():
    tree = ungrouped(torch.zeros(2, 3, 3))
    assert tree.groups(1e9).tolist() == [[0, 1, 2], [0, 1, 2]]
