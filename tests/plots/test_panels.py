import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from mue.modes import ModeRule, binary_masks, class_masks
from mue.plots.panels import (
    as_shown,
    foreground,
    is_ranked,
    shorten,
    show_frame,
    show_mask,
    show_prob,
    show_slice,
    window_around,
)
from mue.types import Hypotheses


def test_a_window_holds_every_mask_and_is_a_quarter_of_a_side_at_least():
    masks = np.zeros((2, 40, 80), bool)
    masks[0, 20, 30] = masks[1, 22, 33] = True  # a twentieth of the height and of the width
    box = window_around(masks)
    assert (box.width, box.height) == (20, 10)
    assert box.x0 <= 29.5 < 33.5 <= box.x1
    assert box.y0 <= 19.5 < 22.5 <= box.y1
    masks[0, 0, 0] = True  # in a corner: the window does not leave the slice
    box = window_around(masks)
    assert (box.x0, box.y0) == (-0.5, -0.5)
    whole = window_around(np.zeros((1, 40, 80), bool))
    assert (whole.x0, whole.y0, whole.width, whole.height) == (-0.5, -0.5, 80, 40)


def test_values_beyond_0_to_1_are_shown_from_their_range():
    x = torch.tensor([[[-2.0, 2.0, 6.0]]])
    np.testing.assert_array_equal(as_shown(x), [[0, 0.5, 1]])
    np.testing.assert_array_equal(as_shown(x / 8 + 0.25), [[0, 0.5, 1]])
    assert as_shown(torch.rand(3, 2, 5)).shape == (2, 5, 3)
    assert as_shown(torch.rand(2, 2, 5)).shape == (2, 5)


def test_the_foreground_is_what_modes_are_made_of():
    one, several = torch.rand(2, 3, 1, 4, 5), torch.rand(2, 3, 4, 4, 5)
    one[0, 0, 0, 0, 0] = 0.5  # not more probable than not
    np.testing.assert_array_equal(foreground(one), binary_masks(one)[:, :, 0])
    np.testing.assert_array_equal(foreground(several), class_masks(several).any(dim=2))
    np.testing.assert_array_equal(foreground(several[1]), foreground(several)[1])


def test_a_frame_is_drawn_unless_the_close_up_is_all_of_the_slice():
    ax = Figure().subplots()
    show_slice(ax, np.zeros((8, 8)))
    show_frame(ax, window_around(np.zeros((1, 8, 8), bool)))
    assert not ax.patches
    masks = np.zeros((1, 8, 8), bool)
    masks[0, 4, 4] = True
    show_frame(ax, window_around(masks))
    assert len(ax.patches) == 1


def test_an_empty_mask_is_said_to_be_empty(words):
    ax = Figure().subplots()
    empty, full = np.zeros((4, 4), bool), np.ones((4, 4), bool)
    show_mask(ax, empty, full[None], "red")
    assert words(ax.figure).count("empty") == 1
    assert len(ax.collections) == 1  # its member


@pytest.mark.parametrize(("prob", "note"), [(0.25, "0.250"), (5e-4, "0.001"), (4e-4, "4e-04")])
def test_a_probability_is_a_bar_and_a_number(bars, prob, note):
    ax = Figure().subplots()

    show_prob(ax, prob, "red")
    assert bars(ax) == pytest.approx([1, prob])
    assert ax.get_xlabel() == note


def test_samples_that_are_not_grouped_are_not_ranked():
    y, prob = torch.rand(1, 2, 1, 4, 4), torch.full((1, 2), 0.5)
    samples = Hypotheses(y, prob, torch.full((1, 2), -1))
    coded = Hypotheses(y, prob, torch.arange(2)[None])
    assert not is_ranked(ModeRule("masks").group(samples, by="code"))
    assert is_ranked(ModeRule("masks").group(samples))
    assert is_ranked(ModeRule("masks").group(coded, by="code"))


def test_of_a_long_name_the_end_is_kept():
    assert shorten("a" * 26) == "a" * 26
    assert shorten("left" + "b" * 26) == "…" + "b" * 25
