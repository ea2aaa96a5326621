import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.patches import StepPatch

from mue.metrics.calibration import Reliability
from mue.plots.reliability import plot_reliability


def test_reliability_has_its_bins_the_diagonal_and_the_counts(words, pixels):
    nan = float("nan")
    curve = Reliability(
        torch.tensor([30, 0, 10]), torch.tensor([0.2, nan, 0.9]), torch.tensor([0.1, nan, 0.8])
    )
    figure = plot_reliability({"ours": curve}, "trust")
    top, bottom = figure.axes
    diagonal = np.asarray(top.lines[0].get_xydata())
    np.testing.assert_allclose(diagonal, [[0, 0], [1, 1]])
    (dots,) = top.collections
    np.testing.assert_allclose(np.asarray(dots.get_offsets()), [[0.2, 0.1], [0.9, 0.8]])
    assert isinstance(dots, PathCollection)
    large, small = dots.get_sizes()
    assert large / small == pytest.approx(3)  # area is count
    (*_, steps) = (p for p in bottom.patches if isinstance(p, StepPatch))
    np.testing.assert_allclose(steps.get_data()[0], [30, 0, 10])
    np.testing.assert_allclose(steps.get_data()[1], [0, 1 / 3, 2 / 3, 1])
    assert {"trust", "ours", "calibrated", "slices"} <= set(words(figure))
    assert pixels(figure).std() > 10
    figure.draw_without_rendering()
    ends = [[ax.transData.transform((at, 0))[0] for at in (0, 1)] for ax in (top, bottom)]
    assert ends[0] == pytest.approx(ends[1])  # a bin stands below its mark
