import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.patches import StepPatch

from mue.plots.spread import plot_spread
from mue.plots.style import save_figure


def test_models_are_sorted_by_their_mean_and_it_is_marked_and_written(words, pixels):
    ged = {"worse": torch.tensor([0.5, 1.0, 1.5]), "better": torch.tensor([0.1, 0.2, 0.6])}
    figure = plot_spread(ged, "GED")
    (ax,) = figure.axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["better", "worse"]
    bottom, top = ax.get_ylim()
    assert bottom > top  # the first row is on top
    dots = [c for c in ax.collections if isinstance(c, PathCollection)]
    marks = [line for line in ax.lines if line.get_marker() == "^"]
    for row, name in enumerate(["better", "worse"]):
        at = np.asarray(dots[row].get_offsets())
        np.testing.assert_allclose(at[:, 0], ged[name])
        assert (abs(at[:, 1] - row) < 0.5).all()  # in its row
        assert np.ravel(marks[row].get_xdata()) == pytest.approx([ged[name].mean().item()])
        assert np.ravel(marks[row].get_ydata()) == row
    said = words(figure)
    assert {"GED", "mean 0.300\nstd 0.216", "mean 1.000\nstd 0.408"} <= set(said)
    assert pixels(figure).std() > 10


@pytest.mark.parametrize("values", [[0.0], [0.3, 0.3], [-1e-7, 0.5]])
def test_every_slice_is_in_the_histogram(values, pixels):
    """One slice, slices that are equal, and a distance that rounding left below 0."""
    figure = plot_spread({"a": torch.tensor(values)}, "")
    hill = next(p for p in figure.axes[0].patches if isinstance(p, StepPatch))
    heights = -0.1 - np.asarray(hill.get_data()[0])
    assert heights.max() == pytest.approx(0.5)
    assert heights.sum() / heights.max() == pytest.approx(len(set(values)))
    assert pixels(figure).std() > 5


def test_the_same_distances_give_the_same_file(tmp_path):
    for name in ("one", "two"):
        figure = plot_spread({"a": torch.tensor([0.1, 0.4])}, "")
        save_figure(figure, tmp_path / name, dpi=40)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
