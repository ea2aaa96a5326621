import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection

from mue.modes import ModeRule
from mue.plots.points import plot_points
from mue.types import Hypotheses


def test_points_are_plotted_with_their_answers_and_what_is_left_out(words, pixels):
    y = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]])
    h = Hypotheses(y, torch.tensor([[0.75, 0.125, 0.001]]), torch.arange(3)[None])
    figure = plot_points(
        torch.tensor([[1.0, 0.5]]), ModeRule("vectors", cut=0.0).group(h), y[:, :2], "points"
    )
    (ax,) = figure.axes
    (dots,) = ax.collections
    assert isinstance(dots, PathCollection)
    np.testing.assert_allclose(
        np.asarray(dots.get_offsets()), y[0, :2]
    )  # the third is all but impossible
    sizes = dots.get_sizes()
    assert sizes[0] / sizes[1] == pytest.approx(0.75 / 0.125)  # area is probability
    words = words(figure)
    assert {"0.75", "0.12", "points"} <= set(words)
    assert any("rest" in word for word in words)
    assert pixels(figure).std() > 5
