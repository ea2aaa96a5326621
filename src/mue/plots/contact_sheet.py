"""A contact sheet of slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mue.errors import MueError
from mue.plots.panels import shorten, show_contour, show_slice, window_around
from mue.plots.style import SMALL, legend_below, new_figure

_RATER_COLOURS = ("#ff5d3b", "#ffc23d", "#4fc3ff", "#8be36b")  # bright, to contrast with grey
_COLUMNS = 6


def plot_contact_sheet(
    images: Sequence[Shaped[np.ndarray, "_ _ _"]],
    masks: Sequence[UInt8[np.ndarray, "_ _ _"]],
    names: Sequence[str],
    title: str,
) -> Figure:
    """Images (c h w) with the contours of all of their raters (r h w), the name beneath.

    A contour that two raters share shows the colours of both, the later within the earlier. Each
    slice is a close-up of at least half its crop.
    """
    n, r = len(masks), max(map(len, masks))
    h, w = (max(image.shape[i] for image in images) for i in (1, 2))
    if len(names) != n:
        raise MueError(f"`names` must name each of the {n} slices, got {len(names)} names")
    columns, side = min(n, _COLUMNS), 1.6 if n > 1 else 3.2
    rows = -(-n // columns)
    colours = [_RATER_COLOURS[j % len(_RATER_COLOURS)] for j in range(r)]
    size = side * columns + 0.2, rows * (side * h / w + 0.32) + 0.6
    with new_figure(title, size) as figure:
        axes = np.asarray(figure.subplots(rows, columns, squeeze=False)).flatten()
        for ax in axes[n:]:
            ax.set_axis_off()
        for i, ax in enumerate(axes[:n]):
            mask = masks[i] > 0
            show_slice(ax, _grey(images[i]), window_around(mask, min_share=0.5))
            for j in range(len(mask)):
                if mask[j].any():
                    show_contour(ax, mask[j], colours[j], 0.6 + 1.4 * (r - 1 - j) / r)
            annotated = int(mask.any(axis=(1, 2)).sum())
            label = f"{shorten(names[i])}\n{annotated} of {len(mask)} annotated"
            ax.set_xlabel(label, fontsize=SMALL, labelpad=2, linespacing=1.3)
        raters = [(f"rater {j + 1}", colour) for j, colour in enumerate(colours)]
        handles = [Line2D([], [], color=colour, lw=2, label=name) for name, colour in raters]
        legend_below(figure, min(r, 8), handles)
    return figure


def _grey(image: Shaped[np.ndarray, "c h w"]) -> Float[np.ndarray, "h w"]:
    """The mean of the channels: bytes as they are, other values from their range to 0..1."""
    grey = image.mean(axis=0, dtype=np.float64)
    if image.dtype == np.uint8:
        return grey / 255
    return (grey - grey.min()) / max(np.ptp(grey), 1e-9)
