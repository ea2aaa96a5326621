"""How far answers are from the true distribution, by their number and by their time."""

from __future__ import annotations

from matplotlib.figure import Figure

from mue.errors import MueError
from mue.evaluation.curves import Point
from mue.plots.style import legend_below, model_colours, new_figure, plain_log_labels, style_axes


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
