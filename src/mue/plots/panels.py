"""Panels that show a slice, with masks in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a slice that a panel shows, in pixels."""

    top: float
    left: float
    height: float
    width: float


def window_around(masks: Bool[np.ndarray, "m h w"], *, min_share: float = 0.25) -> Window:
    """The smallest part of a slice, of its shape, with all masks and a margin around them."""
    h, w = masks.shape[1:]
    _, rows, columns = masks.nonzero()
    if not len(rows):
        return Window(0.0, 0.0, float(h), float(w))
    extent = max((np.ptp(rows) + 1) / h, (np.ptp(columns) + 1) / w)
    scale = min(1.0, max(min_share, 1.3 * extent))
    height, width = float(scale * h), float(scale * w)
    top = np.clip((rows.min() + rows.max() + 1 - height) / 2, 0, h - height)
    left = np.clip((columns.min() + columns.max() + 1 - width) / 2, 0, w - width)
    return Window(float(top), float(left), height, width)


def show_slice(ax: Axes, x: Float[np.ndarray, "h w"], window: Window) -> None:
    """Part of a slice, without a frame."""
    ax.imshow(x, cmap="gray", vmin=0, vmax=1)
    ax.set_xlim(window.left - 0.5, window.left + window.width - 0.5)
    ax.set_ylim(window.top + window.height - 0.5, window.top - 0.5)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def show_contour(
    ax: Axes, mask: Bool[np.ndarray, "h w"], colour: str, width: float, *, fill: float = 0.0
) -> None:
    """The outline of a mask that is not empty; a border of nothing closes it at the edges."""
    h, w = mask.shape
    z = np.pad(mask.astype(float), 1)
    at = np.arange(-1, w + 1), np.arange(-1, h + 1)
    if fill:
        ax.contourf(*at, z, levels=[0.5, 1.5], colors=[colour], alpha=fill)
    ax.contour(*at, z, levels=[0.5], colors=[colour], linewidths=width)


def shorten(name: str, max_length: int = 26) -> str:
    """The end of a name: where names are long, they differ there."""
    return name if len(name) <= max_length else f"…{name[1 - max_length :]}"
