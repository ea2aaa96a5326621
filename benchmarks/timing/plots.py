"""Plots of cost over the number of answers and over pixels, and of loss curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from mue.plots.style import plain_log_labels

_INK, _SOFT, _GRID = "#1b1b1f", "#8a8a94", "#e6e6ea"
_COLOURS = ("#2f6fb0", "#c8452d", "#3f8f5b", "#8a5aa8")


def plot_answers(rows: Sequence[dict[str, Any]], title: str) -> Figure:
    """Milliseconds over the number of answers: ours, and one decoding after the other.

    The thin grey line grows as the number of answers does.
    """
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _SOFT}):
        names = list(dict.fromkeys(row["preset"] for row in rows))
        figure = Figure(figsize=(2.9 * len(names) + 0.6, 3.2), layout="constrained")
        axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(names), sharey=True)))
        for ax, name in zip(axes, names, strict=True):
            some = [row for row in rows if row["preset"] == name]
            k = [row["k"] for row in some]
            ours = [row["ours"]["ms"] for row in some]
            linear = [ours[0] * n / k[0] for n in k]
            ax.plot(k, linear, color=_SOFT, lw=0.8, ls=":", label="linear")
            naive = [row["naive"]["ms"] for row in some]
            ax.plot(k, naive, "o--", color=_COLOURS[1], lw=1, markersize=3, label="one by one")
            ax.plot(k, ours, "o-", color=_COLOURS[0], lw=1.4, markersize=4, label="ours")
            unet = some[0]["unet"]["ms"]
            ax.axhline(unet, color=_INK, lw=0.8, ls="--", label="one pass of a plain U-Net")
            ax.set_title(name, fontsize=10)
            _logarithmic(ax, k)
            ax.set_xlabel("answers")
        _finish(figure, axes[0], title)
    return figure


def plot_sides(rows: Sequence[dict[str, Any]], title: str) -> Figure:
    """Milliseconds over the pixels of an image; the thin lines grow as the pixels do."""
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _SOFT}):
        figure = Figure(figsize=(4.8, 3.6), layout="constrained")
        ax = figure.subplots()
        names = list(dict.fromkeys(row["preset"] for row in rows))
        for i, name in enumerate(names):
            some = [row for row in rows if row["preset"] == name]
            pixels = [row["side"] ** 2 for row in some]
            ours = [row["ours"]["ms"] for row in some]
            colour = _COLOURS[i % len(_COLOURS)]
            linear = [ours[-1] * n / pixels[-1] for n in pixels]
            ax.plot(pixels, linear, color=colour, lw=0.8, ls=":")
            label = f"{name}, {some[0]['k']} answers"
            ax.plot(pixels, ours, "o-", color=colour, lw=1.4, markersize=4, label=label)
        sides = sorted({row["side"] for row in rows})
        _logarithmic(ax, [side**2 for side in sides])
        ax.set_xticklabels([f"{side}²" for side in sides])
        ax.plot([], [], color=_SOFT, lw=0.8, ls=":", label="linear")
        ax.set_xlabel("pixels")
        _finish(figure, ax, title)
    return figure


def plot_curves(
    curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]], terms: Sequence[str], title: str
) -> Figure:
    """Terms of the objective over the steps: what the seeds of each of two ways span."""
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _SOFT}):
        figure = Figure(figsize=(3.2 * len(terms) + 0.4, 3.2), layout="constrained")
        axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(terms))))
        for ax, term in zip(axes, terms, strict=True):
            looks = ((_COLOURS[1], 2.6), (_COLOURS[0], 1.0))  # the first shows below the second
            for (way, runs), (colour, width) in zip(curves.items(), looks, strict=True):
                steps = runs[0]["step"]
                values = np.array([run[term] for run in runs])
                low, high = values.min(axis=0), values.max(axis=0)
                ax.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)
                label = f"{way}, {len(runs)} seeds"
                ax.plot(steps, values.mean(axis=0), color=colour, lw=width, label=label)
            ax.set_title(term, fontsize=10)
            ax.set_xlabel("steps")
            ax.grid(color=_GRID, linewidth=0.6)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
        _finish(figure, axes[0], title, "mean over the batch")
    return figure


def _logarithmic(ax: Axes, ticks: Sequence[int]) -> None:
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(ticks, [str(n) for n in ticks])
    ax.xaxis.set_minor_formatter(NullFormatter())
    plain_log_labels(ax.yaxis)
    ax.grid(color=_GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _finish(figure: Figure, first: Axes, title: str, unit: str = "milliseconds") -> None:
    first.set_ylabel(unit)
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
