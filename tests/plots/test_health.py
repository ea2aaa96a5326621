from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle

from mue.evaluation.health import CodeHealth, Finding, HealthReport
from mue.metrics.bootstrap import Interval
from mue.plots.health import plot_health
from mue.types import Case, Hypotheses


def code(number: int, share: float, blends: float = 0.0, same: tuple[int, ...] = ()) -> CodeHealth:
    return CodeHealth(number, share, share / 2, 1.0, blends, same)


@pytest.fixture
def report() -> HealthReport:
    """Two images, and three codes of which the last was not decoded for the second image."""
    y = torch.linspace(0, 1, 6).view(2, 3, 1, 1, 1).expand(2, 3, 1, 4, 6)
    h = Hypotheses(y, torch.tensor([[0.5, 0.3, 0.2]] * 2), torch.tensor([[7, 1, 4], [1, 7, 9]]))
    q = torch.full((2, 2), 0.5)
    case = Case(torch.rand(2, 1, 4, 6), torch.zeros(2, 2, 1, 4, 6), q, ("a", "b"), ("A", "B"))
    return HealthReport(
        findings=(Finding("blend", "Code 1 blends.", "Train again.", (1,)),),
        codes=(code(7, 0.5), code(1, 0.3, blends=0.75), code(4, 0.2, same=(7,))),
        inputs=10,
        notes=(),
        predicted=0.5,
        observed=0.5,
        missed=0.0,
        mode_tv=None,
        ged=Interval(0.1, 0.1, 0.0, 0.2),
        train_ged=None,
        case=case,
        hypotheses=h,
    )


def test_a_code_has_its_answers_above_its_share(report, words, pixels):
    figure = plot_health(report, "the title")
    shares, *panels = figure.axes
    heights = [bar.get_height() for bar in shares.patches if isinstance(bar, Rectangle)]
    assert heights == pytest.approx([0.5, 0.3, 0.2, 0.25, 0.15, 0.1])
    grid = np.asarray(panels).reshape(2, 4)
    for row, order in enumerate([[0, 1, 2], [1, 0, None]]):
        shown = grid[row, 0].images[0].get_array()
        np.testing.assert_allclose(shown, report.case.x[row, 0])
        for ax, answer in zip(grid[row, 1:], order, strict=True):
            if answer is None:
                assert not ax.images
            else:
                wanted = report.hypotheses.y[row, answer, 0]
                np.testing.assert_allclose(ax.images[0].get_array(), wanted)
    assert {"prior", "frequency", "input"} <= set(words(figure))
    assert f"the title\n{report.verdict}" in words(figure)
    assert pixels(figure).std() > 5


def test_what_is_wrong_with_a_code_is_red(report):
    ticks = {t.get_text(): t.get_color() for t in plot_health(report, "").axes[0].get_xticklabels()}
    assert list(ticks) == ["code 7\n", "code 1\nblends 75%", "code 4\nsame as 7"]
    plain, blend, pair = ticks.values()
    assert plain == pair != blend  # two codes of one mode are no trouble
    finding = Finding("duplicates", "4 codes have the same answer.", "Train again.", (4, 5, 6, 7))
    four = replace(report, codes=(code(4, 0.2, same=(5, 6, 7)),))
    for findings, colour in (((), plain), ((finding,), blend)):  # it is the finding that decides
        figure = plot_health(replace(four, findings=findings), "")
        assert figure.axes[0].get_xticklabels()[0].get_color() == colour


def test_masks_are_outlined_on_their_slice(report):
    patients = replace(report, case=replace(report.case, patients=True))
    figure = plot_health(patients, "")
    dark, bright = figure.axes[2], figure.axes[7]
    for ax, row in ((dark, 0), (bright, 1)):
        assert np.array_equal(np.asarray(ax.images[0].get_array()), report.case.x[row, 0])
    assert [t.get_text() for t in dark.texts] == ["empty"]  # no pixel above one half
    assert bright.collections


@pytest.mark.parametrize(("width", "panels"), [(2, 3), (5, 1)])
def test_vectors_are_points_of_the_plane_or_not_shown(report, width, panels, pixels):
    h, q = report.hypotheses, report.case.q
    case = Case(torch.rand(2, 3), torch.rand(2, 2, width), q, ("a", "b"), ("A", "B"))
    points = Hypotheses(torch.rand(2, 3, width), h.prob, h.code)
    figure = plot_health(replace(report, case=case, hypotheses=points), "")
    assert len(figure.axes) == panels
    assert pixels(figure).std() > 5


def test_codes_beyond_a_page_are_counted(report, words):
    many = replace(report, codes=tuple(code(i, 0.05) for i in range(20)))
    assert "codes left out: 8" in words(plot_health(many, ""))


def test_a_model_without_codes_has_nothing_to_show(report):
    with pytest.raises(ValueError, match="`report` must be of a model with codes"):
        plot_health(replace(report, codes=()), "")
