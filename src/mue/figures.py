"""Pictures: what people would rather look at than read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from PIL import Image
from torch import Tensor

from mue.evaluate import Evaluation
from mue.files import write_atomic
from mue.train import Record
from mue.types import Hypotheses

_INK, _DOT, _TRUE, _SOFT, _LEAF = "#1b1b1f", "#2f6fb0", "#c8452d", "#8a8a94", "#3f8f5b"


def save(figure: Figure, path: Path, *, dpi: int = 150) -> Path:
    """Write a figure as PNG, whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, facecolor="white", metadata={"Software": "mue"})
    write_atomic(path, buffer.getvalue())
    return path


def save_picture(image: Float[Tensor, "c h w"], path: Path) -> Path:
    """Write an answer as PNG: grey values, colours, or the number of each pixel's class."""
    picture = image.detach().cpu().float()
    if picture.shape[0] in (1, 3):
        array = (picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).squeeze(2).numpy()
    else:
        array = picture.argmax(dim=0).byte().numpy()
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG")
    write_atomic(path, buffer.getvalue())
    return path


def draw_probabilities(evaluation: Evaluation, title: str) -> Figure:
    """Predicted probability of each mode of each category, an input a dot, beside the truth.

    The paper's Fig. `MNIST_stat_ours`.
    """
    names = sorted(set(evaluation.group))
    modes = evaluation.true.shape[1]
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _SOFT}):
        figure = Figure(figsize=(2.2 * len(names) + 0.8, 3.0), layout="constrained")
        axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(names), sharey=True)))
        spread = np.random.default_rng(0)
        for ax, name in zip(axes, names, strict=True):
            member = torch.tensor([g == name for g in evaluation.group])
            p, q = evaluation.predicted[member].numpy(), evaluation.true[member][0].numpy()
            for m in range(modes):
                at = m + 1 + spread.uniform(-0.22, 0.22, len(p))
                ax.scatter(at, p[:, m], s=4, color=_DOT, alpha=0.4, linewidths=0, zorder=2)
                ax.hlines(q[m], m + 0.6, m + 1.4, color=_TRUE, linewidth=1.2, zorder=1)
            ax.plot(range(1, modes + 1), p.mean(axis=0), "^", color=_INK, markersize=4, zorder=4)
            ax.set_title(name, fontsize=10)
            ax.set_xticks(range(1, modes + 1))
            ax.set_xlabel("mode")
            ax.set_ylim(0, 1)
            ax.grid(axis="y", color="#e6e6ea", linewidth=0.6)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("probability")
        axes[-1].plot([], [], color=_TRUE, label="true")
        axes[-1].plot([], [], "o", color=_DOT, markersize=3, label="one input")
        axes[-1].plot([], [], "^", color=_INK, markersize=4.5, label="their mean")
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
        figure.suptitle(title, fontsize=10)
    return figure


def draw_answers(
    x: Float[Tensor, "b c h w"],
    hypotheses: Hypotheses,
    title: str,
    names: Sequence[str] | None = None,
) -> Figure:
    """Inputs, each above its answers from the most probable down, with the probability on each.

    The paper's Figs. `MNIST_samples_ours` and `mnist_supp`. `rest` stands below each column, so
    that a ranking never pretends to be complete.
    """
    b, k = hypotheses.prob.shape
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
                spine.set(edgecolor=_TRUE, linewidth=1.2)
            for j in range(k):
                _show(axes[j + 1, i], hypotheses.y[i, j], f"{hypotheses.prob[i, j]:.3f}")
            axes[k, i].set_xlabel(f"rest {hypotheses.rest[i]:.3f}", fontsize=8, color=_SOFT)
        figure.suptitle(title, fontsize=10)
    return figure


def draw_points(
    x: Float[Tensor, "b 2"], hypotheses: Hypotheses, ys: Float[Tensor, "b m 2"], title: str
) -> Figure:
    """Points of the plane with their answers; the area of an answer is its probability."""
    b = len(x)
    with mpl.rc_context({"font.size": 8, "axes.edgecolor": _SOFT}):
        figure = Figure(figsize=(2.6 * b, 3.0), layout="constrained")
        reach = 1.25 * float(torch.cat([x, ys.flatten(0, 1)]).abs().max())
        for i, ax in enumerate(np.atleast_1d(figure.subplots(1, b))):
            ax.plot(*x[i], "x", color=_INK, markersize=7, label="x", zorder=4)
            ax.plot(*ys[i].T, "o", mfc="none", mec=_TRUE, markersize=13, ls="", label="true modes")
            shown = hypotheses.prob[i] > 0.005
            y, p = hypotheses.y[i, shown], hypotheses.prob[i, shown]
            ax.scatter(*y.T, s=260 * p, color=_DOT, alpha=0.7, linewidths=0, label="answers")
            for at, prob in zip(y.tolist(), p.tolist(), strict=True):
                ax.annotate(f"{prob:.2f}", at, textcoords="offset points", xytext=(8, 6))
            ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_xlabel(f"rest {hypotheses.rest[i]:.3f}", color=_SOFT)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        figure.suptitle(title, fontsize=10)
    return figure


def draw_history(records: Sequence[Record], title: str) -> Figure:
    """Losses and the number of codes in use over a training.

    The paper's observation, section `method`: few codes at first, growth, decline, a plateau.
    """
    step = [r.step for r in records]
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _SOFT}):
        figure = Figure(figsize=(6.4, 4.6), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        terms = {"reconstruction": _DOT, "prior": _TRUE, "commitment": _SOFT, "energy": _LEAF}
        for name, colour in terms.items():
            values = np.array([getattr(r, name) for r in records], dtype=float)
            if (values > 0).any():
                top.plot(step, np.where(values > 0, values, np.nan), color=colour, lw=1, label=name)
        top.set_yscale("log")
        top.yaxis.set_major_formatter(LogFormatter())
        top.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.2, 0.5)))
        top.set_ylabel("loss")
        top.legend(frameon=False, fontsize=8)
        bottom.plot(step, [r.codes for r in records], color=_INK, lw=1)
        bottom.set_ylabel("codes in use\n(in a batch)")
        bottom.set_ylim(bottom=0)
        bottom.set_xlabel("step")
        for ax in (top, bottom):
            ax.grid(color="#e6e6ea", linewidth=0.6)
            ax.spines[["top", "right"]].set_visible(False)
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
        ax.set_title(note, loc="left", fontsize=7, pad=2, color=_INK)
