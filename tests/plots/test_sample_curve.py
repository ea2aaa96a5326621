import pytest

from mue.evaluation.curves import Point
from mue.plots.sample_curve import plot_sample_curve


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
