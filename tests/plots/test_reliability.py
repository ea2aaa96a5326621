import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.patches import StepPatch

from mue.metrics.calibration import Reliability, reliability
from mue.plots.reliability import plot_reliability
from mue.plots.spread import plot_spread


def test_a_model_has_one_colour_in_both_figures():
    ged = {"worse": torch.tensor([1.0, 1.5]), "better": torch.tensor([0.1, 0.2])}
    p = torch.tensor([0.2, 0.8])
    spread = plot_spread(ged, "").axes[0]
    trust = plot_reliability({name: reliability(p, p) for name in ged}, "").axes[0]
    of_spread, of_trust = (
        [
            to_hex(np.asarray(c.get_facecolor())[0])
            for c in ax.collections
            if isinstance(c, PathCollection)
        ]
        for ax in (spread, trust)
    )
    assert of_spread == of_trust[::-1]  # the spread is sorted: better, worse
    assert len(set(of_spread)) == 2


def test_no_models_are_refused():
    with pytest.raises(ValueError, match=r"`ged` must hold .* at least one model"):
        plot_spread({}, "")
    with pytest.raises(ValueError, match=r"`curves` must hold .* at least one model"):
        plot_reliability({}, "")


def test_the_axes_of_a_reliability_say_what_is_predicted_and_counted(words):
    half = torch.tensor([0.5])
    labels = {"predicted": "probability of a mode", "observed": "raters in it", "counted": "modes"}
    found = set(words(plot_reliability({"ours": reliability(half, half)}, "", **labels)))
    assert set(labels.values()) <= found
    assert not {"slices", "share of raters who annotated one"} & found


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
