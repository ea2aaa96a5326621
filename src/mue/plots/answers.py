"""Inputs with their answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mue.modes import Modes
from mue.plots.style import BLUE, GREY, INK, RED, legend_below, new_figure
from mue.types import Hypotheses


def plot_answers(
    x: Float[Tensor, "b c h w"],
    hypotheses: Hypotheses | Modes,
    title: str,
    names: Sequence[str] | None = None,
) -> Figure:
    """Inputs, each above its answers from the most probable down, with the probability on each.

    The paper's Figs. `MNIST_samples_ours` and `mnist_supp`. `rest` stands below each column, so
    that a ranking never pretends to be complete. Answers of a model without codes are samples,
    members or heads (Figs. `MNIST_samples_pu` and `mnist_pu_supp`): no number stands on them, and
    below each column that they are not ranked.
    """
    b, k = hypotheses.prob.shape
    ranked = isinstance(hypotheses, Modes) or bool((hypotheses.code >= 0).all())
    height, width = x.shape[-2:]
    cell = 1.9 if width > 1.5 * height else 1.2
    size = cell * b + 0.3, (k + 1) * (cell * height / width + 0.2) + 0.8
    with new_figure(title, size, font_size=8, edge="black") as figure:
        axes = np.asarray(figure.subplots(k + 1, b, squeeze=False))
        for i in range(b):
            _show(axes[0, i], x[i])
            axes[0, i].spines[:].set(edgecolor=RED, linewidth=1.2)
            if names is not None:
                axes[0, i].set_title(names[i], fontsize=9)
            for ax, y, prob in zip(axes[1:, i], hypotheses.y[i], hypotheses.prob[i], strict=True):
                _show(ax, y)
                if ranked:
                    ax.set_title(f"{prob:.3f}", loc="left", fontsize=7, pad=2, color=INK)
            below = f"rest {hypotheses.rest[i]:.3f}" if ranked else "not ranked"
            axes[k, i].set_xlabel(below, fontsize=8, color=GREY)
    return figure


def plot_points(
    x: Float[Tensor, "b 2"], hypotheses: Modes, ys: Float[Tensor, "b m 2"], title: str
) -> Figure:
    """Points of the plane with their answers; the area of an answer is its probability."""
    b = len(x)
    limit = 1.25 * float(torch.cat([x, ys.flatten(0, 1)]).abs().max())
    with new_figure(title, (2.6 * b, 3.0), font_size=8) as figure:
        for i, ax in enumerate(np.atleast_1d(figure.subplots(1, b))):
            ax.plot(*x[i], "x", color=INK, markersize=7, label="x", zorder=4)
            ax.plot(*ys[i].T, "o", mfc="none", mec=RED, markersize=13, ls="", label="true modes")
            shown = hypotheses.prob[i] > 0.005
            y, p = hypotheses.y[i, shown], hypotheses.prob[i, shown]
            ax.scatter(*y.T, s=260 * p, color=BLUE, alpha=0.7, linewidths=0, label="answers")
            for at, prob in zip(y.tolist(), p.tolist(), strict=True):
                ax.annotate(f"{prob:.2f}", at, textcoords="offset points", xytext=(8, 6))
            ax.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_xlabel(f"rest {hypotheses.rest[i]:.3f}", color=GREY)
        legend_below(figure, 3)
    return figure


def _show(ax: Axes, image: Float[Tensor, "c h w"]) -> None:
    """Grey values, colours, or (with one channel per class) the class of each pixel."""
    values = image.detach().cpu().float().clamp(0, 1)
    if values.shape[0] == 3:
        ax.imshow(values.permute(1, 2, 0).numpy())
    elif values.shape[0] == 1:
        ax.imshow(values[0].numpy(), cmap="gray", vmin=0, vmax=1)
    else:
        ax.imshow(values.argmax(dim=0).numpy(), cmap="tab10", vmin=0, vmax=9)
    ax.set(xticks=[], yticks=[])
