"""What was observed, over the probability that was predicted for it."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mue.errors import MueError
from mue.metrics.calibration import Reliability
from mue.plots.style import GREY, legend_below, model_colours, new_figure, style_axes


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
