import numpy as np
import pytest
from matplotlib.colors import to_hex

from mue.plots.contact_sheet import plot_contact_sheet
from mue.plots.overlays import _shrink, plot_overlays


def figure_of(masks: int, classes: tuple[str, ...] = ("mask",), side: int = 32):
    x = np.random.default_rng(0).random((1, side, side))
    ranked = np.zeros((masks, side, side), np.uint8)
    ranked[0, 4:9, 5:12] = 1
    prob = [0.5**i / 2 for i in range(masks)]
    expected = np.zeros((len(classes), side, side))
    return plot_overlays(x, ranked, prob, 0.125, expected, classes, "case")


def test_each_hypothesis_has_its_probability_and_the_rest_is_said():
    figure = figure_of(3)
    assert [ax.get_xlabel() for ax in figure.axes[1:4]] == ["0.500", "0.250", "0.125"]
    assert [ax.get_title() for ax in figure.axes] == ["image", "1", "2", "3", "expected mask"]
    assert [t.get_text() for t in figure.axes[3].texts] == ["empty", "rest 0.125"]


def test_the_expected_mask_has_a_scale_from_0_to_1():
    (scale,) = figure_of(2).axes[-1].child_axes
    assert scale.get_xticks().tolist() == [0, 1]
    assert scale.get_xlim() == (0, 1)
    assert scale.images[0].get_clim() == (0, 1)


def test_an_empty_hypothesis_says_so():
    figure = figure_of(2)
    said = [[t.get_text() for t in ax.texts] for ax in figure.axes[1:3]]
    assert said == [[], ["empty", "rest 0.125"]]


def test_panels_fill_their_rows_evenly():
    """Six panels are two rows of three, not five and one."""
    grid = figure_of(4).axes[0].get_gridspec()
    assert grid is not None
    assert (grid.nrows, grid.ncols) == (2, 3)


def test_a_legend_names_the_classes_where_there_are_several():
    assert not figure_of(1).legends
    (legend,) = figure_of(1, ("rim", "core")).legends
    assert [t.get_text() for t in legend.get_texts()] == ["rim", "core"]


def test_a_class_has_the_colour_that_it_has_on_a_contact_sheet():
    classes = ("rim", "core", "edge")
    image, masks = np.zeros((1, 8, 8), np.uint8), np.ones((2, 8, 8), np.uint8)
    sheet = plot_contact_sheet([image], [masks], ["a"], "", ("none", *classes))
    lines = [to_hex(line.get_color()) for line in sheet.legends[0].get_lines()]
    (legend,) = figure_of(1, classes).legends
    patches = [to_hex(patch.get_facecolor()) for patch in legend.get_patches()]
    assert lines == patches
    assert len(set(lines)) == 3


def test_large_images_are_shown_at_a_smaller_size():
    shown = figure_of(1, side=2000).axes[0].images[0].get_array()
    assert shown is not None
    assert max(shown.shape) <= 640


@pytest.mark.parametrize("at", [(0, 0), (7, 10), (6, 9), (3, 5)])
def test_a_mask_of_one_pixel_is_not_lost_where_it_is_shown_smaller(at):
    mask = np.zeros((1, 8, 11), np.uint8)
    mask[0, *at] = 2
    shown = _shrink(mask, 4)
    assert shown.shape == (1, *np.zeros((8, 11))[::4, ::4].shape)
    assert np.argwhere(shown).tolist() == [[0, at[0] // 4, at[1] // 4]]
    assert shown.max() == 2
