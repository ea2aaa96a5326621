"""Losses over a training."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from mue.plots.style import BLUE, GREEN, GREY, GRID, INK, RED, plain_log_labels
from mue.training.log import LogRecord


def plot_history(records: Sequence[LogRecord], title: str) -> Figure:
    """Losses and the number of codes in use over a training.

    The paper's observation, section `method`: few codes at first, growth, decline, a plateau. A
    baseline without codes has the losses alone.
    """
    step, coded = [r.step for r in records], any(r.codes for r in records)
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": GREY}):
        figure = Figure(figsize=(6.4, 4.6 if coded else 3.2), layout="constrained")
        panels = figure.subplots(1 + coded, 1, sharex=True, squeeze=False)[:, 0]
        if coded:
            panels[0].get_gridspec().set_height_ratios((2, 1))
        top = panels[0]
        terms = {"reconstruction": BLUE, "prior": RED, "commitment": GREY, "energy": GREEN}
        for name, colour in terms.items():
            values = np.array([getattr(r, name) for r in records], dtype=float)
            if (values > 0).any():
                top.plot(step, np.where(values > 0, values, np.nan), color=colour, lw=1, label=name)
        top.set_yscale("log")
        plain_log_labels(top.yaxis)
        top.set_ylabel("loss")
        above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
        top.legend(frameon=False, fontsize=8, ncols=len(terms), **above)
        if coded:
            panels[1].plot(step, [r.codes for r in records], color=INK, lw=1)
            panels[1].set_ylabel("codes in use\n(in a batch)")
            panels[1].set_ylim(bottom=0)
            panels[1].yaxis.get_major_locator().set_params(integer=True)
        panels[-1].set_xlabel("step")
        for ax in panels:
            ax.grid(color=GRID, linewidth=0.6)
            ax.spines[["top", "right"]].set_visible(False)
        figure.suptitle(title, fontsize=10)
    return figure
