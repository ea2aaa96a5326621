"""Points of the plane with the modes of their answers."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from mue.modes import Modes
from mue.plots.style import BLUE, GREY, INK, RED, legend_below, new_figure


def plot_points(
    x: Float[Tensor, "b 2"], modes: Modes, ys: Float[Tensor, "b m 2"], title: str
) -> Figure:
    """Points of the plane with their modes; the area of a mode is its probability."""
    b = len(x)
    limit = 1.25 * float(torch.cat([x, ys.flatten(0, 1)]).abs().max())
    with new_figure(title, (2.6 * b, 3.0)) as figure:
        for i, ax in enumerate(np.atleast_1d(figure.subplots(1, b))):
            ax.plot(*x[i], "x", color=INK, markersize=7, label="x", zorder=4)
            ax.plot(*ys[i].T, "o", mfc="none", mec=RED, markersize=13, ls="", label="true modes")
            shown = modes.prob[i] > 0.005
            y, p = modes.y[i, shown], modes.prob[i, shown]
            ax.scatter(*y.T, s=260 * p, color=BLUE, alpha=0.7, linewidths=0, label="modes")
            for at, prob in zip(y.tolist(), p.tolist(), strict=True):
                ax.annotate(f"{prob:.2f}", at, textcoords="offset points", xytext=(8, 6))
            ax.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_xlabel(f"rest {modes.rest[i]:.3f}", color=GREY)
        legend_below(figure, 3)
    return figure
