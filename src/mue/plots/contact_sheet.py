"""A contact sheet of slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mue.errors import MueError
from mue.plots.panels import CASING, shorten, show_contour, show_slice, window_around
from mue.plots.style import INK, SMALL, legend_below, mask_colours, new_figure

_COLUMNS = 6


def plot_contact_sheet(
    images: Sequence[Shaped[np.ndarray, "_ _ _"]],
    masks: Sequence[UInt8[np.ndarray, "_ _ _"]],
    names: Sequence[str],
    title: str,
    labels: Sequence[str] = (),
) -> Figure:
    """Images (c h w) with the masks of all of their raters (r h w), the name beneath.

    With one class there is a contour for each rater; one that two share shows the colours of both,
    the later within the earlier. Each image is a close-up of at least half of it. With several
    classes, named by `labels` with the background first, the share of raters who chose each class
    is shown below the image: the brighter its colour, the more.
    """
    n, r = len(masks), max(map(len, masks))
    if len(names) != n:
        raise MueError(f"`names` must name each of the {n} slices, got {len(names)} names")
    several = len(labels) > 2
    kinds = labels[1:] if several else [f"rater {j + 1}" for j in range(r)]
    colours = mask_colours(len(kinds))
    columns, side = min(n, _COLUMNS), 1.6 if n > 1 else 3.2
    rows = -(-n // columns)
    tallest = max(image.shape[1] / image.shape[2] for image in images) * (1 + several)
    size = side * columns + 0.2, rows * (side * tallest + 0.32) + 0.6
    with new_figure(title, size) as figure:
        axes = np.asarray(figure.subplots(rows, columns, squeeze=False)).flatten()
        for ax in axes[n:]:
            ax.set_axis_off()
        for ax, image, mask, name in zip(axes, images, masks, names, strict=False):
            if several:
                show_slice(ax, np.concatenate([_colours(image), _shares(mask, colours)]))
            else:
                shown = _colours(image) if len(image) == 3 else _scaled(image[0])
                show_slice(ax, shown, window_around(mask > 0, min_share=0.5))
                widths = {j: 0.6 + 1.4 * (r - 1 - j) / r for j, m in enumerate(mask) if m.any()}
                for j, width in widths.items():
                    show_contour(ax, mask[j] > 0, INK, width + CASING)
                for j, width in widths.items():
                    show_contour(ax, mask[j] > 0, colours[j], width)
            annotated = int(mask.any(axis=(1, 2)).sum())
            label = f"{shorten(name)}\n{annotated} of {len(mask)} annotated"
            ax.set_xlabel(label, fontsize=SMALL, labelpad=2, linespacing=1.3)
        named = zip(kinds, colours, strict=True)
        handles = [Line2D([], [], color=colour, lw=2, label=name) for name, colour in named]
        legend_below(figure, min(len(handles), 8), handles)
    return figure


def _shares(mask: UInt8[np.ndarray, "r h w"], colours: Sequence[str]) -> Float[np.ndarray, "h w 3"]:
    """The colours of the classes, each as bright as the share of raters who chose it."""
    share = np.stack([(mask == i + 1).mean(axis=0) for i in range(len(colours))], axis=-1)
    return share @ np.array([to_rgb(colour) for colour in colours])


def _colours(image: Shaped[np.ndarray, "c h w"]) -> Float[np.ndarray, "h w 3"]:
    """Three channels as red, green and blue, any other number as the grey of the first."""
    channels = image if len(image) == 3 else image[:1].repeat(3, axis=0)
    return _scaled(channels.transpose(1, 2, 0))


def _scaled(values: Shaped[np.ndarray, "*s"]) -> Float[np.ndarray, "*s"]:
    """Values in 0..1: bytes as they are, others by their range without the outermost 1 %."""
    if values.dtype == np.uint8:
        return values / 255
    low, high = np.percentile(values, (0.5, 99.5))
    return ((values - low) / max(high - low, 1e-9)).clip(0, 1)
