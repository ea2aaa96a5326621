"""The energy distance of every slice, for each model."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from mue.errors import MueError
from mue.plots.style import INK, model_colours, new_figure, style_axes


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
