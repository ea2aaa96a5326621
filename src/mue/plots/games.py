"""Pictures: what people would rather look at than read."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogFormatter
from PIL import Image
from torch import Tensor

from mue.atomic import write_atomic
from mue.errors import MueError
from mue.evaluation.compare import HIGHER, ComparedModel, LatentSamples, Point, best, metrics_of
from mue.evaluation.known_modes import ModeEvaluation
from mue.training.log import LogRecord
from mue.types import Hypotheses

_INK, _DOT, _TRUE, _SOFT, _LEAF = "#1b1b1f", "#2f6fb0", "#c8452d", "#8a8a94", "#3f8f5b"
_GRID = "#e6e6ea"
_MODELS = (_DOT, _TRUE, _LEAF, "#8a5aa8", "#c48a1a", _INK)


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


def draw_probabilities(evaluation: ModeEvaluation, title: str) -> Figure:
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
            ax.grid(axis="y", color=_GRID, linewidth=0.6)
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
                spine.set(edgecolor=_TRUE, linewidth=1.2)
            for j in range(k):
                note = f"{hypotheses.prob[i, j]:.3f}" if ranked else None
                _show(axes[j + 1, i], hypotheses.y[i, j], note)
            foot = f"rest {hypotheses.rest[i]:.3f}" if ranked else "not ranked"
            axes[k, i].set_xlabel(foot, fontsize=8, color=_SOFT)
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


def draw_comparison(rivals: Sequence[ComparedModel], title: str) -> Figure:
    """A panel for each metric, a dot with its interval for each rival, the best of them in red.

    The paper's Fig. `LIDC_GED_compare`, for every metric of the data.
    """
    metrics, ahead = metrics_of(rivals), best(rivals)
    names = [rival.name for rival in rivals]
    with mpl.rc_context({"font.size": 8, "axes.edgecolor": _SOFT}):
        columns = min(4, len(metrics))
        rows = -(-len(metrics) // columns)
        width = 1.9 * max(2, columns) + 0.075 * max(map(len, names)) + 0.4
        height = rows * (0.26 * len(rivals) + 0.9) + 0.3
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = np.asarray(figure.subplots(rows, columns, sharey=True, squeeze=False)).flatten()
        for ax in grid[len(metrics) :]:
            ax.set_axis_off()
        axes: list[Axes] = list(grid[: len(metrics)])
        for ax, metric in zip(axes, metrics, strict=True):
            found = {i: r.metrics[metric] for i, r in enumerate(rivals) if metric in r.metrics}
            for i, value in found.items():
                colour = _TRUE if i == ahead[metric] else _DOT
                ax.plot([value.low, value.high], [i, i], color=colour, lw=2, alpha=0.5)
                ax.plot(value.mean, i, "o", color=colour, markersize=4.5)
            lows = [value.low for value in found.values()]
            if min(lows) > 0 and max(v.high for v in found.values()) > 20 * min(lows):
                ax.set_xscale("log")
                plain_numbers(ax.xaxis)
            else:
                ax.locator_params(axis="x", nbins=4)
            ax.set_title(metric, fontsize=9)
            ax.set_xlabel("more is better" if metric in HIGHER else "less is better", color=_SOFT)
            ax.grid(color=_GRID, linewidth=0.6)
            ax.set_axisbelow(True)
            ax.tick_params(axis="y", length=0)
            ax.spines[["top", "right", "left"]].set_visible(False)
        axes[0].set_yticks(range(len(names)), names)
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        figure.suptitle(title, fontsize=10)
    return figure


def draw_densities(samples: LatentSamples, title: str) -> Figure:
    """The density of each sample's latent, by the mode that it was drawn as, beside the truth.

    The paper's Fig. `MNIST_stat_pu`: on the left axis the logarithm of the density, 0 at its peak,
    a dot for the first sample of each input and a triangle for the mean over all samples; on the
    right axis the true probability of each mode and the share of the samples that are of it.
    """
    names, frequency = sorted(set(samples.group)), samples.frequency()
    modes = samples.true.shape[1]
    low = float(samples.log_density[:, 0].min()) * 1.05
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _SOFT}):
        figure = Figure(figsize=(2.2 * len(names) + 1.4, 3.2), layout="constrained")
        axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(names), sharey=True)))
        spread = np.random.default_rng(0)
        for ax, name in zip(axes, names, strict=True):
            member = torch.tensor([g == name for g in samples.group])
            mode, density = samples.mode[member], samples.log_density[member]
            share, right = frequency[member].mean(dim=0), ax.twinx()
            for m in range(modes):
                dots = density[:, 0][mode[:, 0] == m].numpy()
                at = m + 1 + spread.uniform(-0.22, 0.22, len(dots))
                ax.scatter(at, dots, s=4, color=_DOT, alpha=0.4, linewidths=0)
                if (mode == m).any():
                    ax.plot(m + 1, density[mode == m].mean(), "^", color=_INK, markersize=4)
                truth = float(samples.true[member][0, m])
                right.hlines(truth, m + 0.6, m + 1.4, color=_TRUE, linewidth=1.2)
                right.plot(m + 1.3, float(share[m]), "D", mfc="white", mec=_TRUE, markersize=4)
            ax.set_title(name, fontsize=10)
            ax.set_xticks(range(1, modes + 1))
            ax.set_xlabel("mode")
            ax.set_ylim(low, 0)
            right.set_ylim(0, 1)
            ax.grid(axis="y", color=_GRID, linewidth=0.6)
            ax.spines["top"].set_visible(False)
            right.spines["top"].set_visible(False)
            right.tick_params(labelright=ax is axes[-1], colors=_TRUE)
            if ax is axes[-1]:
                right.set_ylabel("probability", color=_TRUE)
        axes[0].set_ylabel("log density of the latent")
        axes[0].plot([], [], "o", color=_DOT, markersize=3, label="density of one sample")
        axes[0].plot([], [], "^", color=_INK, markersize=4.5, label="their mean")
        axes[0].plot([], [], color=_TRUE, label="true probability")
        axes[0].plot([], [], "D", mfc="white", mec=_TRUE, ms=4, ls="", label="share of samples")
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
        figure.suptitle(title, fontsize=10)
    return figure


def draw_sample_curve(curves: dict[str, list[Point]], title: str) -> Figure:
    """How near the truth models come, over the number of answers and over the time for them.

    A sampler is a line through its numbers of samples. A model that ranks its answers is a point,
    with a dashed line that a sampler would have to get below.
    """
    if not curves:
        raise MueError("`curves` must hold the points of at least one model, got none")
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _SOFT}):
        figure = Figure(figsize=(8.4, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for (name, points), colour in zip(curves.items(), itertools.cycle(_MODELS), strict=False):
            tv = [point.mode_tv for point in points]
            for ax, at in (
                (left, [point.answers for point in points]),
                (right, [1000 * point.seconds for point in points]),
            ):
                if len(points) == 1:
                    ax.axhline(tv[0], color=colour, linewidth=0.9, linestyle="--", alpha=0.7)
                    ax.plot(at, tv, "D", color=colour, markersize=5, label=name, zorder=3)
                else:
                    ax.plot(at, tv, "o-", color=colour, markersize=3, linewidth=1, label=name)
        for ax, label in ((left, "answers to an input"), (right, "milliseconds for an input")):
            ax.set(xscale="log", yscale="log", xlabel=label)
            plain_numbers(ax.xaxis)
            plain_numbers(ax.yaxis)
            ax.grid(color=_GRID, linewidth=0.6)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
        left.set_ylabel("mode_tv, mean over inputs")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8
        )
        figure.suptitle(title, fontsize=10)
    return figure


def draw_history(records: Sequence[LogRecord], title: str) -> Figure:
    """Losses and the number of codes in use over a training.

    The paper's observation, section `method`: few codes at first, growth, decline, a plateau. A
    baseline without codes has the losses alone.
    """
    step, coded = [r.step for r in records], any(r.codes for r in records)
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _SOFT}):
        figure = Figure(figsize=(6.4, 4.6 if coded else 3.2), layout="constrained")
        panels = figure.subplots(1 + coded, 1, sharex=True, squeeze=False)[:, 0]
        if coded:
            panels[0].get_gridspec().set_height_ratios((2, 1))
        top = panels[0]
        terms = {"reconstruction": _DOT, "prior": _TRUE, "commitment": _SOFT, "energy": _LEAF}
        for name, colour in terms.items():
            values = np.array([getattr(r, name) for r in records], dtype=float)
            if (values > 0).any():
                top.plot(step, np.where(values > 0, values, np.nan), color=colour, lw=1, label=name)
        top.set_yscale("log")
        plain_numbers(top.yaxis)
        top.set_ylabel("loss")
        above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
        top.legend(frameon=False, fontsize=8, ncols=len(terms), **above)
        if coded:
            panels[1].plot(step, [r.codes for r in records], color=_INK, lw=1)
            panels[1].set_ylabel("codes in use\n(in a batch)")
            panels[1].set_ylim(bottom=0)
            panels[1].yaxis.get_major_locator().set_params(integer=True)
        panels[-1].set_xlabel("step")
        for ax in panels:
            ax.grid(color=_GRID, linewidth=0.6)
            ax.spines[["top", "right"]].set_visible(False)
        figure.suptitle(title, fontsize=10)
    return figure


class _Plain(LogFormatter):
    """0.6 where it would say 6e-01, and nothing where it would say nothing."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def plain_numbers(axis: Axis) -> None:
    """Write 0.01 and 1000 on a logarithmic axis, and little between them."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(_Plain(minor_thresholds=(1.2, 0.5)))


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
