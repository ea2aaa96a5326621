"""Masks over the image that they are about."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mue.plots.panels import CASING, annotate, show_contour, show_prob
from mue.plots.style import BLUE, GREY, INK, SMALL, legend_below, mask_colours, new_figure

_SIDE = 640
"""Pixels of the longer side of an image that is shown: contours of more take long."""
_COLUMNS = 5


def plot_overlays(
    x: Float[np.ndarray, "c h w"],
    masks: UInt8[np.ndarray, "m h w"],
    prob: Sequence[float],
    rest: float,
    expected: Float[np.ndarray, "c2 h w"],
    classes: Sequence[str],
    title: str,
) -> Figure:
    """An image, its hypotheses from the most probable down, and the expected mask.

    `rest` stands below the last of them, so that a ranking never pretends to be complete. The
    expected mask is the probability of any class, over the image, with its scale below it.
    """
    step = max(1, math.ceil(max(x.shape[1:]) / _SIDE))
    x, masks, expected = x[:, ::step, ::step], _shrink(masks, step), expected[:, ::step, ::step]
    picture = x.transpose(1, 2, 0) if len(x) == 3 else np.repeat(x[:1].transpose(1, 2, 0), 3, 2)
    panels = len(masks) + 2
    rows = math.ceil(panels / _COLUMNS)
    columns = math.ceil(panels / rows)
    height, width = x.shape[1:]
    cell = 1.9
    size = columns * cell + 0.2, rows * (cell * height / width + 0.55) + 0.7
    colours = mask_colours(len(classes))
    with new_figure(title, size) as figure:
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax in axes:
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        for ax in axes[panels:]:
            ax.set_axis_off()
        for ax in axes[:panels]:
            ax.imshow(picture, vmin=0, vmax=1)
        axes[0].set_title("image", color=INK)
        for i, (ax, mask, p) in enumerate(zip(axes[1:], masks, prob, strict=False)):
            ax.set_title(f"{i + 1}", color=INK)
            for number, colour in enumerate(colours, start=1):
                if (shown := mask == number).any():
                    show_contour(ax, shown, INK, 1.0 + CASING)
                    show_contour(ax, shown, colour, 1.0, fill=0.25)
            if not mask.any():
                annotate(
                    ax,
                    "empty",
                    (0.5, 0.0),
                    3.0,
                    ha="center",
                    fontsize=SMALL,
                    color="white",
                    bbox={"facecolor": INK, "alpha": 0.6, "linewidth": 0, "pad": 1.2},
                )
            show_prob(ax, p, BLUE)
        last = axes[panels - 1]
        foreground = expected.sum(axis=0).clip(0, 1)
        last.imshow(foreground, cmap="inferno", vmin=0, vmax=1, alpha=foreground.clip(0, 0.85))
        _show_scale(last)
        last.set_title("expected mask", color=INK)
        below = axes[len(masks)], f"rest {rest:.3f}", (0.5, 0.0), -28.0
        annotate(*below, ha="center", color=GREY)
        if len(classes) > 1:
            named = zip(classes, colours, strict=True)
            handles = [Patch(fc=colour, ec=INK, label=name) for name, colour in named]
            legend_below(figure, min(4, len(classes)), handles)
    return figure


def _show_scale(ax: Axes) -> None:
    """A colour bar below a panel, where the bar of a probability is below others."""
    scale = ax.inset_axes((0.1, -0.06, 0.8, 0.035))
    scale.imshow(np.linspace(0, 1, 256)[None], cmap="inferno", aspect="auto", extent=(0, 1, 0, 1))
    scale.set(yticks=[], xticks=[0, 1])
    scale.tick_params(axis="x", labelsize=SMALL, length=2, pad=1)
    scale.spines[:].set_visible(False)


def _shrink(masks: UInt8[np.ndarray, "m h w"], step: int) -> UInt8[np.ndarray, "m h2 w2"]:
    """Masks at a smaller size that lose none of their parts: the highest class of each square."""
    m, h, w = masks.shape
    whole = np.pad(masks, ((0, 0), (0, -h % step), (0, -w % step)))
    return whole.reshape(m, -(-h // step), step, -(-w // step), step).max(axis=(2, 4))
