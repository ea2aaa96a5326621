"""Losses over a training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from mue.plots.style import BLUE, GREEN, GREY, INK, RED, new_figure, plain_log_labels, style_axes
from mue.training.log import LogRecord

_TERMS = {"reconstruction": BLUE, "prior": RED, "commitment": GREY, "energy": GREEN}


def plot_history(records: Sequence[LogRecord], title: str) -> Figure:
    """Losses and the number of codes in use over a training.

    The paper's observation, section `method`: few codes at first, growth, decline, a plateau. A
    baseline without codes has the losses alone.
    """
    step, coded = [r.step for r in records], any(r.codes for r in records)
    with new_figure(title, (6.4, 4.6 if coded else 3.2)) as figure:
        ratios = (2, 1) if coded else (1,)
        panels = np.atleast_1d(figure.subplots(len(ratios), sharex=True, height_ratios=ratios))
        top = panels[0]
        for name, colour in _TERMS.items():
            values = np.array([getattr(r, name) for r in records], dtype=float)
            if (values > 0).any():
                top.plot(step, np.where(values > 0, values, np.nan), color=colour, lw=1, label=name)
        top.set_yscale("log")
        plain_log_labels(top.yaxis)
        top.set_ylabel("loss")
        top.legend(ncols=len(_TERMS), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
        if coded:
            panels[1].plot(step, [r.codes for r in records], color=INK, lw=1)
            panels[1].set_ylabel("codes in use\n(per batch)")
            panels[1].set_ylim(bottom=0)
            panels[1].yaxis.get_major_locator().set_params(integer=True)
        panels[-1].set_xlabel("step")
        for ax in panels:
            style_axes(ax)
    return figure
