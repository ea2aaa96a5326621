"""A contact sheet of slices."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, UInt8
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from mue.errors import MueError
from mue.plots.panels import shorten, show_contour, show_slice, window_around

_TINTS = ("#ff5d3b", "#ffc23d", "#4fc3ff", "#8be36b")  # bright, to be told apart on grey
_COLUMNS = 6


def plot_contact_sheet(
    images: UInt8[Tensor, "n h w"],
    masks: Bool[Tensor, "n r h w"],
    names: Sequence[str],
    title: str,
) -> Figure:
    """A contact sheet: slices with the contours of all of their raters, the name beneath.

    A contour that two raters share shows the colours of both, the later within the earlier. Each
    slice is a close-up of at least half its crop.
    """
    n, r, h, w = masks.shape
    if len(names) != n:
        raise MueError(f"`names` must name each of the {n} slices, got {len(names)} names")
    columns = min(n, _COLUMNS)
    rows = -(-n // columns)
    side = 1.6 if n > 1 else 3.2
    with mpl.rc_context({"font.size": 7}):
        figure = Figure(
            figsize=(side * columns + 0.2, rows * (side * h / w + 0.32) + 0.6), layout="constrained"
        )
        axes = np.asarray(figure.subplots(rows, columns, squeeze=False)).flatten()
        for ax in axes[n:]:
            ax.set_axis_off()
        for i, ax in enumerate(axes[:n]):
            mask = masks[i].cpu().numpy()
            show_slice(ax, images[i].cpu().numpy() / 255, window_around(mask, min_share=0.5))
            for j in range(r):
                if mask[j].any():
                    show_contour(ax, mask[j], _TINTS[j % len(_TINTS)], 0.6 + 1.4 * (r - 1 - j) / r)
            drew = int(mask.any(axis=(1, 2)).sum())
            ax.set_xlabel(f"{shorten(names[i])}\n{drew} of {r} drew", labelpad=2, linespacing=1.3)
        handles = [Line2D([], [], color=_TINTS[j % len(_TINTS)], lw=2) for j in range(r)]
        labels = [f"rater {j + 1}" for j in range(r)]
        figure.legend(handles, labels, loc="outside lower center", ncols=min(r, 8), frameon=False)
        figure.suptitle(title, fontsize=10)
    return figure
