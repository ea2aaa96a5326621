"""Losses and validations over a training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mue.plots.style import BLUE, GREEN, GREY, INK, RED, new_figure, plain_log_labels, style_axes
from mue.runs.log import LogRecord, ValidationRecord, best_validation

_TERMS = {"reconstruction": BLUE, "prior": RED, "commitment": GREY, "energy": GREEN}


def plot_history(
    records: Sequence[LogRecord], title: str, validations: Sequence[ValidationRecord] = ()
) -> Figure:
    """Losses, validations and the number of codes in use over a training.

    The paper's observation, section `method`: few codes at first, growth, decline, a plateau. A
    baseline without codes has the losses alone. With validations there are panels of the score, the
    likelihood and the calibration, and the step whose weights are exported is marked.
    """
    coded = any(r.codes for r in records)
    plots = [_plot_losses, *[_plot_score, _plot_likelihood, _plot_calibration] * bool(validations)]
    heights = [2, *[1.2] * (len(plots) - 1)]
    if coded:
        plots, heights = [*plots, _plot_codes], [*heights, 1]
    with new_figure(title, (6.4, 0.5 + 1.35 * sum(heights))) as figure:
        panels = np.atleast_1d(figure.subplots(len(plots), sharex=True, height_ratios=heights))
        for plot, ax in zip(plots, panels, strict=True):
            plot(ax, records, validations)
            style_axes(ax)
        panels[-1].set_xlabel("step")
    return figure


def _plot_losses(ax: Axes, records: Sequence[LogRecord], _: Sequence[ValidationRecord]) -> None:
    step = [r.step for r in records]
    for name, colour in _TERMS.items():
        values = np.array([getattr(r, name) for r in records], dtype=float)
        if (values > 0).any():
            ax.plot(step, np.where(values > 0, values, np.nan), color=colour, lw=1, label=name)
    _log_scale(ax)
    ax.set_ylabel("loss")
    ax.legend(ncols=len(_TERMS), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)


def _plot_score(ax: Axes, _: Sequence[LogRecord], validations: Sequence[ValidationRecord]) -> None:
    best = best_validation(validations)
    step = [v.step for v in validations]
    ax.plot(step, [v.score for v in validations], color=BLUE, lw=1, marker=".", ms=4, label="val")
    label = f"best: {best.score:.4f} at step {best.step:,}"
    ax.plot(best.step, best.score, "o", color=RED, ms=6, mfc="none", ls="none", label=label)
    _log_scale(ax)
    ax.set_ylabel(best.metric)
    ax.legend(loc="upper right")


def _plot_likelihood(
    ax: Axes, _: Sequence[LogRecord], validations: Sequence[ValidationRecord]
) -> None:
    step = [v.step for v in validations]
    for name, values, colour in (
        ("train", [v.train_nll for v in validations], GREY),
        ("val", [v.nll for v in validations], BLUE),
    ):
        ax.plot(step, values, color=colour, lw=1, marker=".", ms=4, label=name)
    _log_scale(ax)
    ax.set_ylabel("negative log-\nlikelihood (nats)")
    ax.legend(loc="upper right", ncols=2)


def _plot_calibration(
    ax: Axes, _: Sequence[LogRecord], validations: Sequence[ValidationRecord]
) -> None:
    step = [v.step for v in validations]
    ax.plot(step, [v.ece for v in validations], color=BLUE, lw=1, marker=".", ms=4)
    ax.set_ylabel("calibration error\nof modes (val)")
    ax.set_ylim(bottom=0)


def _plot_codes(
    ax: Axes, records: Sequence[LogRecord], validations: Sequence[ValidationRecord]
) -> None:
    ax.plot([r.step for r in records], [r.codes for r in records], color=INK, lw=1, label="batch")
    if validations:
        step = [v.step for v in validations]
        ax.plot(step, [v.codes for v in validations], color=BLUE, lw=1, marker=".", label="val")
        ax.legend(loc="upper right", ncols=2)
    ax.set_ylabel("codes in use")
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator("auto", integer=True))


def _log_scale(ax: Axes) -> None:
    ax.set_yscale("log")
    plain_log_labels(ax.yaxis)
