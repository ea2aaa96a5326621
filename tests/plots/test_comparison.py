import itertools

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.patches import StepPatch

from mue.evaluation.compare import ComparedModel, Point
from mue.metrics.bootstrap import Interval
from mue.metrics.calibration import Reliability, reliability
from mue.plots.comparison import (
    plot_comparison,
    plot_reliability,
    plot_sample_curve,
    plot_spread,
)
from mue.plots.style import save_figure


def compared(name: str, tv: float, iou: float | None, samples: int | None = None) -> ComparedModel:
    metrics = {"mode_tv": Interval(tv, 0.1, tv - 0.01, tv + 0.02)}
    if iou is not None:
        metrics["hm_iou_16"] = Interval(iou, 0.1, iou, iou)
    return ComparedModel(name, "vq", samples, 16, 1, 10, 1.0, metrics)


def test_a_comparison_has_a_panel_for_each_metric_and_the_best_in_red(pixels, at):
    models = [compared("a", 0.2, 0.5), compared("b", 0.1, 0.7, 16), compared("b", 0.3, None, 1)]
    figure = plot_comparison(models, "who is ahead")
    panels = {ax.get_title(): ax for ax in figure.axes if ax.get_title()}
    assert list(panels) == ["mode_tv", "hm_iou_16"]
    ax = panels["mode_tv"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b, 16 samples", "b, 1 sample"]
    bars, dots = ax.lines[::2], ax.lines[1::2]
    assert [at(d)[0] for d in dots] == [[0.2], [0.1], [0.3]]
    assert at(bars[0])[0] == pytest.approx([0.19, 0.22])
    colours = [d.get_color() for d in dots]
    assert colours[1] not in (colours[0], colours[2])
    assert colours[0] == colours[2]
    other = panels["hm_iou_16"].lines[1::2]  # which the last model does not have
    assert [at(d)[1] for d in other] == [[0], [1]]
    assert other[1].get_color() == colours[1]  # higher is better
    assert (ax.get_xlabel(), panels["hm_iou_16"].get_xlabel()) == (
        "lower is better",
        "higher is better",
    )
    assert pixels(figure).std() > 5


@pytest.mark.parametrize(("low", "high"), [(0.02, 0.5), (0.013, 0.6), (3.0, 70.0), (0.7, 25.0)])
def test_labels_of_a_logarithmic_panel_do_not_overlap(low, high):
    models = [
        ComparedModel(
            name, "vq", None, 16, 1, 10, 1.0, dict.fromkeys("abcd", Interval(v, v, 0.95 * v, v))
        )
        for name, v in (("first", low), ("second", high))
    ]
    figure = plot_comparison(models, "")
    figure.draw_without_rendering()
    for ax in figure.axes:
        assert ax.get_xscale() == "log"
        labels = [t for t in ax.get_xticklabels(which="both") if t.get_text()]
        left, right = ax.get_xlim()
        shown = [t.get_window_extent() for t in labels if left <= t.get_position()[0] <= right]
        assert len(shown) >= 2
        boxes = sorted(shown, key=lambda box: box.x0)
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_a_sampler_is_a_line_and_a_ranking_a_point_with_a_level(words, pixels, at):
    curves = {
        "sampler": [Point(1, 0.5, 0.01), Point(2, 0.4, 0.02), Point(4, 0.3, 0.04)],
        "ranked": [Point(16, 0.01, 0.03)],
    }
    figure = plot_sample_curve(curves, "how many")
    left, right = figure.axes
    line, level, point = left.lines
    assert at(line) == ([1, 2, 4], [0.5, 0.4, 0.3])
    assert set(at(level)[1]) == {0.01}
    assert at(point) == ([16], [0.01])
    assert at(right.lines[0])[0] == pytest.approx([10, 20, 40])  # milliseconds
    assert (left.get_xscale(), left.get_yscale(), right.get_xscale()) == ("log", "log", "log")
    assert {"sampler", "ranked", "how many"} <= set(words(figure))
    assert pixels(figure).std() > 5
    with pytest.raises(ValueError, match="`curves` must hold the points of at least one model"):
        plot_sample_curve({}, "")


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


def test_the_same_distances_give_the_same_file(tmp_path):
    for name in ("one", "two"):
        figure = plot_spread({"a": torch.tensor([0.1, 0.4])}, "")
        save_figure(figure, tmp_path / name, dpi=40)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


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
