"""Plots of cost over the number of answers and over pixels, and of loss curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

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


def plot_answers(rows: Sequence[dict[str, Any]], title: str) -> Figure:
    """Milliseconds over the number of answers: ours, and one decoding after the other.

    The dotted line is linear in the number of answers.
    """
    names = list(dict.fromkeys(row["preset"] for row in rows))
    with new_figure(title, (2.9 * len(names) + 0.6, 3.2)) as figure:
        axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(names), sharey=True)))
        for ax, name in zip(axes, names, strict=True):
            own = [row for row in rows if row["preset"] == name]
            k = [row["k"] for row in own]
            ours, naive = ([row[way]["ms"] for row in own] for way in ("ours", "naive"))
            linear = [ours[0] * n / k[0] for n in k]
            ax.plot(k, linear, color=GREY, lw=0.8, ls=":", label="linear")
            ax.plot(k, naive, "o--", color=RED, lw=1, markersize=3, label="one by one")
            ax.plot(k, ours, "o-", color=BLUE, lw=1.4, markersize=4, label="ours")
            unet = own[0]["unet"]["ms"]
            ax.axhline(unet, color=INK, lw=0.8, ls="--", label="one pass of a plain U-Net")
            ax.set_title(name)
            _logarithmic(ax, k)
            ax.set_xlabel("answers")
        axes[0].set_ylabel("milliseconds")
        legend_below(figure, 2)
    return figure


def plot_sides(rows: Sequence[dict[str, Any]], title: str) -> Figure:
    """Milliseconds over the pixels of an image; the dotted lines are linear in the pixels."""
    with new_figure(title, (4.8, 3.6)) as figure:
        ax = figure.subplots()
        for name, colour in model_colours(dict.fromkeys(row["preset"] for row in rows)).items():
            own = [row for row in rows if row["preset"] == name]
            pixels = [row["side"] ** 2 for row in own]
            ours = [row["ours"]["ms"] for row in own]
            linear = [ours[-1] * n / pixels[-1] for n in pixels]
            ax.plot(pixels, linear, color=colour, lw=0.8, ls=":")
            label = f"{name}, {own[0]['k']} answers"
            ax.plot(pixels, ours, "o-", color=colour, lw=1.4, markersize=4, label=label)
        sides = sorted({row["side"] for row in rows})
        _logarithmic(ax, [side**2 for side in sides])
        ax.set_xticklabels([f"{side}²" for side in sides])
        ax.plot([], [], color=GREY, lw=0.8, ls=":", label="linear")
        ax.set(xlabel="pixels", ylabel="milliseconds")
        legend_below(figure, 2)
    return figure


def plot_curves(
    curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]], terms: Sequence[str], title: str
) -> Figure:
    """Terms of the objective over the steps: mean and range over the seeds of each of two ways."""
    with new_figure(title, (3.2 * len(terms) + 0.4, 3.2)) as figure:
        axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(terms))))
        for ax, term in zip(axes, terms, strict=True):
            looks = ((RED, 2.6), (BLUE, 1.0))  # the first shows below the second
            for (way, runs), (colour, width) in zip(curves.items(), looks, strict=True):
                steps = runs[0]["step"]
                values = np.array([run[term] for run in runs])
                low, high = values.min(axis=0), values.max(axis=0)
                ax.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)
                label = f"{way}, {len(runs)} seeds"
                ax.plot(steps, values.mean(axis=0), color=colour, lw=width, label=label)
            ax.set_title(term)
            ax.set_xlabel("steps")
            style_axes(ax)
        axes[0].set_ylabel("mean over the batch")
        legend_below(figure, 2)
    return figure


def _logarithmic(ax: Axes, ticks: Sequence[int]) -> None:
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(ticks, [str(n) for n in ticks])
    ax.xaxis.set_minor_formatter(NullFormatter())
    plain_log_labels(ax.yaxis)
    style_axes(ax)
