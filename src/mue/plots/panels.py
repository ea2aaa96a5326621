"""Panels that show a slice, with masks in it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox


def window_around(masks: Bool[np.ndarray, "m h w"], *, min_share: float = 0.25) -> Bbox:
    """The smallest part of a slice, of its shape, with all masks and a margin around them.

    It is at least `min_share` of the height and width, and all of the slice if no mask has a pixel.
    Pixel i goes from i - 1/2 to i + 1/2.
    """
    h, w = masks.shape[1:]
    _, rows, columns = masks.nonzero()
    if not len(rows):
        return Bbox.from_bounds(-0.5, -0.5, w, h)
    extent = max((np.ptp(rows) + 1) / h, (np.ptp(columns) + 1) / w)
    scale = min(1.0, max(min_share, 1.3 * extent))
    height, width = float(scale * h), float(scale * w)
    top = np.clip((rows.min() + rows.max() + 1 - height) / 2, 0, h - height)
    left = np.clip((columns.min() + columns.max() + 1 - width) / 2, 0, w - width)
    return Bbox.from_bounds(float(left) - 0.5, float(top) - 0.5, width, height)


def show_slice(ax: Axes, x: Float[np.ndarray, "h w"], window: Bbox | None = None) -> None:
    """A slice or a part of it, without a frame."""
    ax.imshow(x, cmap="gray", vmin=0, vmax=1)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    if window is not None:
        ax.set(xlim=(window.x0, window.x1), ylim=(window.y1, window.y0))


def show_contour(
    ax: Axes, mask: Bool[np.ndarray, "h w"], colour: str, width: float, *, fill: float = 0.0
) -> None:
    """The outline of a mask that is not empty; padding closes it at the edges."""
    h, w = mask.shape
    z = np.pad(mask.astype(float), 1)
    at = np.arange(-1, w + 1), np.arange(-1, h + 1)
    if fill:
        ax.contourf(*at, z, levels=[0.5, 1.5], colors=[colour], alpha=fill)
    ax.contour(*at, z, levels=[0.5], colors=[colour], linewidths=width)


def shorten(name: str, max_length: int = 26) -> str:
    """The end of a name: where names are long, they differ there."""
    return name if len(name) <= max_length else f"…{name[1 - max_length :]}"
