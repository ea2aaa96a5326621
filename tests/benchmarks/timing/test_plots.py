import numpy as np

from timing.plots import plot_curves

TERMS = ("reconstruction", "prior")


def run(level: float) -> dict[str, list[float]]:
    return {
        "step": [1.0, 2.0, 3.0],
        "reconstruction": [level, 2.0, 1.0],
        "prior": [1.0, level, 0.0],
    }


def test_curves_have_a_panel_for_each_term_and_a_band_for_each_way():
    curves = {"naive": [run(3.0), run(5.0)], "ours": [run(4.0), run(4.5)]}
    figure = plot_curves(curves, TERMS, "guess")
    first, second = figure.axes
    assert [ax.get_title() for ax in figure.axes] == list(TERMS)
    assert [line.get_label() for line in first.lines] == ["naive, 2 seeds", "ours, 2 seeds"]
    assert np.asarray(first.lines[0].get_ydata()).tolist() == [4, 2, 1]
    assert len(second.collections) == 2
