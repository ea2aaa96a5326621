"""Models side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from mue.errors import MueError
from mue.evaluation.compare import HIGHER, ComparedModel, Point, best, metrics_of
from mue.metrics.calibration import Reliability
from mue.plots.style import (
    BLUE,
    GREY,
    INK,
    RED,
    legend_below,
    model_colours,
    new_figure,
    plain_log_labels,
    style_axes,
)


def plot_comparison(models: Sequence[ComparedModel], title: str) -> Figure:
    """A panel for each metric, a dot with its interval for each model, the best of them in red.

    The paper's Fig. `LIDC_GED_compare`, for every metric of the data.
    """
    metrics, best_of = metrics_of(models), best(models)
    names = [model.name for model in models]
    columns = min(4, len(metrics))
    rows = -(-len(metrics) // columns)
    width = 1.9 * max(2, columns) + 0.075 * max(map(len, names)) + 0.4
    height = rows * (0.26 * len(models) + 0.9) + 0.3
    with new_figure(title, (width, height)) as figure:
        grid = np.asarray(figure.subplots(rows, columns, sharey=True, squeeze=False)).flatten()
        for ax in grid[len(metrics) :]:
            ax.set_axis_off()
        axes: list[Axes] = list(grid[: len(metrics)])
        for ax, metric in zip(axes, metrics, strict=True):
            found = {i: m.metrics[metric] for i, m in enumerate(models) if metric in m.metrics}
            for i, value in found.items():
                colour = RED if i == best_of[metric] else BLUE
                ax.plot([value.low, value.high], [i, i], color=colour, lw=2, alpha=0.5)
                ax.plot(value.mean, i, "o", color=colour, markersize=4.5)
            low = min(value.low for value in found.values())
            if low > 0 and max(value.high for value in found.values()) > 20 * low:
                ax.set_xscale("log", subs=[3])  # more labels would overlap in a narrow panel
                plain_log_labels(ax.xaxis)
            else:
                ax.locator_params(axis="x", nbins=4)
            ax.set_title(metric)
            ax.set_xlabel("higher is better" if metric in HIGHER else "lower is better", color=GREY)
            ax.tick_params(axis="y", length=0)
            style_axes(ax, hidden=["top", "right", "left"])
        axes[0].set_yticks(range(len(names)), names)
        axes[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def plot_sample_curve(curves: dict[str, list[Point]], title: str) -> Figure:
    """Distance to the true distribution over the number of answers and over the time for them.

    A sampler is a line through its numbers of samples. A model that ranks its answers is a point,
    with a dashed line that a sampler would have to get below.
    """
    if not curves:
        raise MueError("`curves` must hold the points of at least one model, got none")
    colours = model_colours(curves)
    with new_figure(title, (8.4, 3.6)) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        for name, points in curves.items():
            colour, tv = colours[name], [point.mode_tv for point in points]
            for ax, at in (
                (left, [point.answers for point in points]),
                (right, [1000 * point.seconds for point in points]),
            ):
                if len(points) == 1:
                    ax.axhline(tv[0], color=colour, linewidth=0.9, linestyle="--", alpha=0.7)
                    ax.plot(at, tv, "D", color=colour, markersize=5, label=name, zorder=3)
                else:
                    ax.plot(at, tv, "o-", color=colour, markersize=3, linewidth=1, label=name)
        for ax, label in ((left, "answers per input"), (right, "milliseconds per input")):
            ax.set(xscale="log", yscale="log", xlabel=label)
            plain_log_labels(ax.xaxis)
            plain_log_labels(ax.yaxis)
            style_axes(ax)
        left.set_ylabel("mode_tv, mean over inputs")
        legend_below(figure, 5)
    return figure


def plot_spread(ged: dict[str, Float[Tensor, " b"]], title: str) -> Figure:
    """Energy distance of every slice, a row for each model, the lowest mean on top.

    The paper's Fig. `LIDC_GED_compare`: a dot is a slice, the triangle their mean. The bar is the
    middle half of the slices, its notch the median, and above it their histogram. A model has the
    colour of its position in `ged`, as in `plot_reliability`.
    """
    if not ged:
        raise MueError("`ged` must hold the energy distances of at least one model, got none")
    values = {name: v.detach().cpu().double().numpy() for name, v in ged.items()}
    names, colours = sorted(values, key=lambda name: values[name].mean()), model_colours(values)
    everything = np.concatenate([[0.0, 1e-6], *values.values()])
    edges = np.linspace(everything.min(), everything.max(), 49)
    share = {name: np.histogram(v, edges)[0] / len(v) for name, v in values.items()}
    tallest = max(s.max() for s in share.values())
    jitter = np.random.default_rng(0)
    with new_figure(title, (7.2, 0.85 * len(names) + 1.25)) as figure:
        ax = figure.subplots()
        for row, name in enumerate(names):
            v, colour, base = values[name], colours[name], row - 0.1
            heights = base - 0.5 * share[name] / tallest
            ax.stairs(heights, edges, baseline=base, fill=True, color=colour, alpha=0.25)
            ax.stairs(heights, edges, baseline=base, color=colour, linewidth=0.7)
            at = row + jitter.uniform(0.08, 0.32, len(v))
            alpha = float(np.clip(60 / len(v), 0.12, 0.6))
            ax.scatter(v, at, s=5, color=colour, alpha=alpha, linewidths=0)
            low, middle, high = np.quantile(v, [0.25, 0.5, 0.75])
            ax.plot([low, high], [row, row], color=colour, linewidth=4, solid_capstyle="butt")
            ax.plot(middle, row, "|", color="white", markersize=4, markeredgewidth=1.2)
            ax.plot(v.mean(), row, "^", color=INK, markersize=6, mec="white", mew=0.6, zorder=4)
            note = f"mean {v.mean():.3f}\nstd {v.std():.3f}"
            ax.annotate(note, (1.01, row), xycoords=("axes fraction", "data"), va="center")
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.6, -0.7)
        ax.margins(x=0.02)
        ax.set_xlabel("energy distance of a slice")
        ax.tick_params(axis="y", length=0)
        style_axes(ax, grid="x", hidden=["top", "right", "left"])
    return figure


def plot_reliability(
    curves: dict[str, Reliability],
    title: str,
    *,
    predicted: str = "predicted probability of a lesion",
    observed: str = "share of raters who annotated one",
    counted: str = "slices",
) -> Figure:
    """Share of raters over predicted probability, and a histogram of the predictions.

    On the diagonal a probability means what it says. The area of a mark is proportional to the
    number in its bin, which the histogram below gives. `predicted`, `observed` and `counted` are
    the labels of the axes.
    """
    if not curves:
        raise MueError("`curves` must hold the reliability of at least one model, got none")
    colours = model_colours(curves)
    with new_figure(title, (4.6, 6.0)) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1))
        top.plot([0, 1], [0, 1], "--", color=GREY, linewidth=0.9, zorder=1)
        for name, curve in curves.items():
            colour, count = colours[name], curve.count.cpu().numpy()
            full = count > 0
            at, share = curve.predicted.cpu().numpy()[full], curve.share.cpu().numpy()[full]
            top.plot(at, share, color=colour, linewidth=1, alpha=0.8, zorder=2)
            area = 600 * count[full] / count.sum()
            top.scatter(at, share, s=area, color=colour, alpha=0.6, linewidths=0, zorder=3)
            edges = np.linspace(0, 1, len(count) + 1)
            if len(curves) == 1:
                bottom.stairs(count, edges, fill=True, color=colour, alpha=0.3)
            bottom.stairs(count, edges, color=colour, linewidth=1)
        top.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), ylabel=observed)
        bottom.set(xlabel=predicted, ylabel=counted)
        for ax in (top, bottom):
            style_axes(ax)
        mark = {"marker": "o", "markersize": 5}
        handles = [Line2D([], [], color=c, label=name, **mark) for name, c in colours.items()]
        handles.append(Line2D([], [], color=GREY, linestyle="--", label="calibrated"))
        columns = 48 // (max(map(len, curves)) + 8)  # what fits the width
        legend_below(figure, max(1, min(len(curves), columns)), handles)
    return figure
