"""Inputs with their answers."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mue.plots.style import BLUE, GREY, INK, RED
from mue.types import Hypotheses


def plot_answers(
    x: Float[Tensor, "b c h w"],
    hypotheses: Hypotheses,
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
    ranked = bool((hypotheses.code >= 0).all())
    height, width = x.shape[-2:]
    cell = 1.9 if width > 1.5 * height else 1.2
    with mpl.rc_context({"font.size": 8}):
        figure = Figure(
            figsize=(cell * b + 0.3, (k + 1) * (cell * height / width + 0.2) + 0.8),
            layout="constrained",
        )
        axes = np.asarray(figure.subplots(k + 1, b, squeeze=False))
        for i in range(b):
            _show(axes[0, i], x[i], None)
            if names is not None:
                axes[0, i].set_title(names[i], fontsize=9)
            for spine in axes[0, i].spines.values():
                spine.set(edgecolor=RED, linewidth=1.2)
            for j in range(k):
                note = f"{hypotheses.prob[i, j]:.3f}" if ranked else None
                _show(axes[j + 1, i], hypotheses.y[i, j], note)
            foot = f"rest {hypotheses.rest[i]:.3f}" if ranked else "not ranked"
            axes[k, i].set_xlabel(foot, fontsize=8, color=GREY)
        figure.suptitle(title, fontsize=10)
    return figure


def plot_points(
    x: Float[Tensor, "b 2"], hypotheses: Hypotheses, ys: Float[Tensor, "b m 2"], title: str
) -> Figure:
    """Points of the plane with their answers; the area of an answer is its probability."""
    b = len(x)
    with mpl.rc_context({"font.size": 8, "axes.edgecolor": GREY}):
        figure = Figure(figsize=(2.6 * b, 3.0), layout="constrained")
        reach = 1.25 * float(torch.cat([x, ys.flatten(0, 1)]).abs().max())
        for i, ax in enumerate(np.atleast_1d(figure.subplots(1, b))):
            ax.plot(*x[i], "x", color=INK, markersize=7, label="x", zorder=4)
            ax.plot(*ys[i].T, "o", mfc="none", mec=RED, markersize=13, ls="", label="true modes")
            shown = hypotheses.prob[i] > 0.005
            y, p = hypotheses.y[i, shown], hypotheses.prob[i, shown]
            ax.scatter(*y.T, s=260 * p, color=BLUE, alpha=0.7, linewidths=0, label="answers")
            for at, prob in zip(y.tolist(), p.tolist(), strict=True):
                ax.annotate(f"{prob:.2f}", at, textcoords="offset points", xytext=(8, 6))
            ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_xlabel(f"rest {hypotheses.rest[i]:.3f}", color=GREY)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        figure.suptitle(title, fontsize=10)
    return figure


def _show(ax: Axes, image: Float[Tensor, "c h w"], note: str | None) -> None:
    picture = image.detach().cpu().float().clamp(0, 1)
    if picture.shape[0] == 3:
        ax.imshow(picture.permute(1, 2, 0).numpy())
    elif picture.shape[0] == 1:
        ax.imshow(picture[0].numpy(), cmap="gray", vmin=0, vmax=1)
    else:  # one class a channel: the class of each pixel
        ax.imshow(picture.argmax(dim=0).numpy(), cmap="tab10", vmin=0, vmax=9)
    ax.set_xticks([])
    ax.set_yticks([])
    if note is not None:
        ax.set_title(note, loc="left", fontsize=7, pad=2, color=INK)
