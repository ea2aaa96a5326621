import numpy as np

from mue.plots.history import plot_history
from mue.runs.log import LogRecord, ValidationRecord


def test_a_history_has_the_losses_above_and_the_codes_below(pixels):
    records = [
        LogRecord(
            step=step,
            prior=0.0 if step < 3 else 1.0 / step,  # a term that waits is not plotted at 0
            reconstruction=2.0 / step,
            commitment=0.0,
            total=3.0 / step,
            codes=step % 3,
            lr=0.1,
            seconds=0.0,
        )
        for step in range(1, 6)
    ]
    figure = plot_history(records, "how it went")
    top, bottom = figure.axes
    lines = {str(line.get_label()): line for line in top.lines}
    assert set(lines) == {"reconstruction", "prior"}  # and no commitment
    plotted = np.asarray(lines["prior"].get_ydata(), dtype=float)
    np.testing.assert_allclose(plotted, [np.nan, np.nan, 1 / 3, 1 / 4, 1 / 5])
    np.testing.assert_allclose(np.asarray(lines["reconstruction"].get_xdata()), range(1, 6))
    np.testing.assert_allclose(np.asarray(bottom.lines[0].get_ydata()), [1, 2, 0, 1, 2])
    assert pixels(figure).std() > 5


def test_a_baseline_without_codes_has_the_losses_alone():
    record = LogRecord(
        step=1,
        prior=1.0,
        reconstruction=2.0,
        commitment=0.0,
        total=3.0,
        codes=0,
        lr=0.1,
        seconds=0.0,
    )
    assert len(plot_history([record, record], "").axes) == 1


def test_validations_have_three_panels_and_the_best_is_marked(pixels):
    record = LogRecord(
        step=4,
        prior=1.0,
        reconstruction=2.0,
        commitment=0.0,
        total=3.0,
        codes=2,
        lr=0.1,
        seconds=0.0,
    )
    validations = [
        ValidationRecord(step, "ged", score, nll=score * 10, train_nll=9.0 - step, ece=0.1, codes=2)
        for step, score in [(2, 0.4), (4, 0.2), (6, 0.3)]
    ]
    figure = plot_history([record], "how it went", validations)
    _, score, likelihood, calibration, codes = figure.axes
    curve, best = score.lines
    np.testing.assert_allclose(np.asarray(curve.get_xydata()), [[2, 0.4], [4, 0.2], [6, 0.3]])
    np.testing.assert_allclose(np.asarray(best.get_xydata()), [[4, 0.2]])
    assert best.get_label() == "best: 0.2000 at step 4"
    assert score.get_ylabel() == "ged"
    np.testing.assert_allclose(np.asarray(calibration.lines[0].get_ydata()), [0.1, 0.1, 0.1])
    np.testing.assert_allclose(np.asarray(codes.lines[1].get_xydata()), [[2, 2], [4, 2], [6, 2]])
    values = {str(line.get_label()): np.asarray(line.get_ydata()) for line in likelihood.lines}
    np.testing.assert_allclose(values["train"], [7, 5, 3])
    np.testing.assert_allclose(values["val"], [4, 2, 3])
    assert pixels(figure).std() > 5
