"""Models side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mue.evaluation.compare import ComparedModel, best, higher_is_better, metrics_of
from mue.plots.style import BLUE, GREY, RED, new_figure, plain_log_labels, style_axes


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
            better = "higher" if higher_is_better(metric) else "lower"
            ax.set_xlabel(f"{better} is better", color=GREY)
            ax.tick_params(axis="y", length=0)
            style_axes(ax, hidden=["top", "right", "left"])
        axes[0].set_yticks(range(len(names)), names)
        axes[0].set_ylim(len(names) - 0.5, -0.5)
    return figure
