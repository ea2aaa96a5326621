"""Inputs with their answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from mue.modes import Modes
from mue.plots.panels import annotate, is_ranked, show_blank, show_picture, show_prob
from mue.plots.style import BLUE, GREY, RED, new_figure


def plot_answers(
    x: Float[Tensor, "b c h w"], modes: Modes, title: str, names: Sequence[str] | None = None
) -> Figure:
    """Inputs, each above its modes from the most probable down, with the probability of each.

    The paper's Figs. `MNIST_samples_ours` and `mnist_supp`. `rest` stands below each column, so
    that a ranking never pretends to be complete. Samples, members or heads that are not grouped
    (Figs. `MNIST_samples_pu` and `mnist_pu_supp`) have no number, and below each column stands
    that they are not ranked.
    """
    modes, ranked = modes.cpu(), is_ranked(modes)
    b, m = modes.prob.shape
    height, width = x.shape[-2:]
    cell = 1.9 if width > 1.5 * height else 1.2
    size = cell * b + 0.3, (m + 1) * (cell * height / width + 0.28) + 0.8
    with new_figure(title, size, edge="black") as figure:
        axes = np.asarray(figure.subplots(m + 1, b, squeeze=False))
        for i in range(b):
            show_picture(axes[0, i], x[i])
            axes[0, i].spines[:].set(edgecolor=RED, linewidth=1.2)
            if names is not None:
                axes[0, i].set_title(names[i])
            for ax, y, prob in zip(axes[1:, i], modes.y[i], modes.prob[i].tolist(), strict=True):
                if prob == 0:  # this input has fewer modes than others
                    show_blank(ax, (height, width))
                    continue
                show_picture(ax, y)
                if ranked:
                    show_prob(ax, prob, BLUE)
            below = f"rest {modes.rest[i]:.3f}" if ranked else "not ranked"
            annotate(axes[m, i], below, (0.5, 0.0), -28.0, ha="center", color=GREY)
    return figure
