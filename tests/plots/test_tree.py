import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mue.modes import Modes, linkage, mask_distance, modes_of, ungrouped
from mue.plots.style import BLUE, GREEN, RED
from mue.plots.tree import plot_tree

H, W = 24, 32
X = torch.linspace(0, 1, H * W).view(1, H, W)


def box(size: int) -> torch.Tensor:
    mask = torch.zeros(1, H, W)
    mask[:, 8 : 8 + size, 10:14] = 1
    return mask


def modes(masks: list[torch.Tensor], prob: list[float], cut: float = 0.5) -> Modes:
    y, p = torch.stack(masks)[None], torch.tensor([prob])
    tree = linkage(mask_distance(y, y), p)
    return modes_of(y, p, torch.arange(len(prob))[None], tree, cut)


@pytest.fixture
def three() -> Modes:
    """Two outlines, one of which has three quarters of the other, and twice an empty mask."""
    return modes([box(0), box(8), box(6), box(0)], [0.375, 0.25, 0.125, 0.125])


def parts(figure: Figure) -> tuple[Axes, Axes, list[Axes]]:
    """The input, the dendrogram, and the leaves from left to right."""
    image, tree, *leaves = figure.axes
    return image, tree, leaves


def branches(tree: Axes) -> list[tuple[list[float], list[float], str]]:
    """Where the branches go and their colours, without the line of the cut."""
    return [
        (
            np.asarray(line.get_xdata(), dtype=float).tolist(),
            np.asarray(line.get_ydata(), dtype=float).tolist(),
            str(line.get_color()),
        )
        for line in tree.lines
        if line.get_linestyle() == "-"
    ]


def test_groups_are_joined_at_their_distance_and_modes_have_their_colours(three, pixels):
    figure = plot_tree(X, three, "the title")
    _, tree, leaves = parts(figure)
    assert len(leaves) == 3  # the empty masks are the same
    found = branches(tree)
    (empty,) = ([line for line in found if line[2] == BLUE],)
    assert [(x, y) for x, y, _ in empty] == [([0, 0], [0, 0.5])]  # up to the cut
    outlines = [(x, y) for x, y, colour in found if colour == RED]
    assert ([1, 1], [0, 0.25]) in outlines
    assert ([2, 2], [0, 0.25]) in outlines
    assert ([1, 1.5], [0.25, 0.25]) in outlines
    assert ([2, 1.5], [0.25, 0.25]) in outlines
    assert ([1.5, 1.5], [0.25, 0.5]) in outlines
    above = [(x, y) for x, y, colour in found if colour not in (BLUE, RED)]
    assert ([1.5, 1.5], [0.5, 1.0]) in above
    assert ([0, 0], [0.5, 1.0]) in above
    assert ([0, 0.75], [1.0, 1.0]) in above
    (cut,) = (line for line in tree.lines if line.get_linestyle() == "--")
    assert set(np.asarray(cut.get_ydata())) == {0.5}
    assert pixels(figure).std() > 10


def test_a_branch_is_as_wide_as_its_group_is_probable(three):
    _, tree, _ = parts(plot_tree(X, three, ""))
    width = {
        tuple(np.asarray(line.get_xdata(), dtype=float)): line.get_linewidth()
        for line in tree.lines
        if np.ptp(np.asarray(line.get_xdata(), dtype=float)) == 0
    }
    prob = {(0, 0): 0.5, (1, 1): 0.25, (2, 2): 0.125, (1.5, 1.5): 0.375}
    slope = {
        round((width[at] - width[2, 2]) / (p - 0.125), 6) for at, p in prob.items() if p > 0.125
    }
    assert len(slope) == 1
    assert slope.pop() > 0


def test_probabilities_stand_at_modes_and_below_leaves(three, words, bars):
    image, tree, leaves = parts(plot_tree(X, three, "the title"))
    assert {"mode 1\n0.500", "mode 2\n0.375", "cut", "distance"} <= set(words(tree))
    assert [ax.get_xlabel() for ax in leaves] == ["0.500\n×2", "0.250", "0.125"]
    assert [bars(ax) for ax in leaves] == [[1, 0.5], [1, 0.25], [1, 0.125]]
    assert image.get_xlabel() == "input\nrest 0.125"
    assert ["empty" in words(ax) for ax in leaves] == [True, False, False]


def test_another_cut_gives_other_modes(three, words):
    _, tree, _ = parts(plot_tree(X, three.at(0.1), ""))
    assert {"mode 1\n0.500", "mode 2\n0.250", "mode 3\n0.125"} <= set(words(tree))
    assert {colour for _, y, colour in branches(tree) if y[0] < 0.1} == {BLUE, RED, GREEN}


def test_masks_are_a_close_up_and_pictures_are_whole(three):
    image, _, leaves = parts(plot_tree(X, three, ""))
    assert image.patches
    assert all(np.ptp(ax.get_xlim()) < W for ax in leaves)
    image, _, leaves = parts(plot_tree(X, three, "", outlines=False))
    assert not image.patches
    for ax, y in zip(leaves, (box(0), box(8), box(6)), strict=True):
        np.testing.assert_allclose(np.asarray(ax.images[0].get_array()), y[0])


def test_groups_at_one_distance_are_joined_at_once_the_most_probable_first(words):
    masks = [torch.zeros(1, H, W).index_fill(2, torch.tensor([i]), 1) for i in range(4)]
    _, tree, leaves = parts(plot_tree(X, modes(masks, [0.4, 0.3, 0.2, 0.1]), ""))
    assert [ax.get_xlabel() for ax in leaves] == ["0.400", "0.300", "0.200", "0.100"]
    level = [(x, y) for x, y, _ in branches(tree) if x[0] != x[1]]
    assert level == [([float(i), 1.5], [1.0, 1.0]) for i in range(4)]
    assert next(word for word in words(tree) if "mode" in word) == "mode 1\n0.400"


def test_many_answers_are_leaves_of_several_and_all_are_counted():
    torch.manual_seed(0)
    masks = [(torch.rand(1, H, W) < 0.5).float() for _ in range(40)]
    many = modes(masks + masks[:20], [1 / 60] * 60, cut=0.9)
    _, _, leaves = parts(plot_tree(X, many, ""))
    assert len(leaves) == 16
    sizes = [int(ax.get_xlabel().partition("×")[2] or 1) for ax in leaves]
    assert sum(sizes) == 60


def test_where_modes_are_too_many_the_least_probable_are_left_out(words):
    masks = [torch.zeros(1, H, W).index_fill(2, torch.tensor([i]), 1) for i in range(20)]
    prob = [(20 - i) / 210 for i in range(20)]
    image, tree, leaves = parts(plot_tree(X, modes(masks, prob), ""))
    assert len(leaves) == 16
    assert image.get_xlabel() == f"input\nrest {10 / 210:.3f}"  # 4 + 3 + 2 + 1
    assert sum("mode" in word for word in words(tree)) == 16


def test_answers_that_are_not_joined_stand_side_by_side(three):
    y, p = three.answers, three.answer_prob
    apart = modes_of(y, p, three.answer_code, ungrouped(mask_distance(y, y)), 0.5)
    _, tree, leaves = parts(plot_tree(X, apart, ""))
    assert len(leaves) == 4
    assert all(x[0] == x[1] for x, _, _ in branches(tree))  # nothing is joined


@pytest.mark.parametrize("count", [1, 2, 9, 16])
@pytest.mark.parametrize("shape", [(1, 24, 24), (1, 14, 56)])
def test_no_texts_of_a_tree_overlap(count, shape, overlapping):
    masks = [torch.zeros(shape).index_fill(2, torch.tensor([i]), 1) for i in range(count)]
    found = modes(masks, [1 / count] * count)
    for outlines in (True, False):
        assert not overlapping(plot_tree(torch.rand(shape), found, "title", outlines=outlines))


def test_several_inputs_are_refused(three):
    y = three.answers.expand(2, -1, -1, -1, -1)
    p, code = three.answer_prob.expand(2, -1), three.answer_code.expand(2, -1)
    two = modes_of(y, p, code, linkage(mask_distance(y, y), p), 0.5)
    with pytest.raises(ValueError, match="`modes` must be those of one input, got 2 inputs"):
        plot_tree(X, two, "")
