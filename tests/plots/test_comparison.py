import itertools

import pytest

from mue.evaluation.compare import ComparedModel
from mue.metrics.bootstrap import Interval
from mue.plots.comparison import plot_comparison


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
