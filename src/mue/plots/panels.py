"""Panels that show a slice or a picture, with masks and probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox, ScaledTranslation
from torch import Tensor

from mue.modes import Modes, masks_of
from mue.plots.style import GRID, INK, SMALL

CASING = 1.2
"""Points by which a dark line below an outline is wider, so that it is seen on any image."""
_NOTE = {"color": "white", "bbox": {"facecolor": INK, "alpha": 0.6, "linewidth": 0, "pad": 1.2}}


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


def as_shown(x: Float[Tensor, "c h w"]) -> Float[np.ndarray, "h w *rgb"]:
    """An input as colours, where it has three channels, or as the grey of the first.

    Values beyond 0..1, as those of standardized images, are shown from their range.
    """
    shown = x.detach().cpu().float()[: 3 if len(x) == 3 else 1]
    low, high = shown.aminmax()
    if low < 0 or high > 1:
        shown = (shown - low) / (high - low)
    return shown.permute(1, 2, 0).numpy() if len(shown) == 3 else shown[0].numpy()


def foreground(y: Float[Tensor, "*b c h w"]) -> Bool[np.ndarray, "*b h w"]:
    """Answers as masks: of several classes all but the background."""
    c, h, w = y.shape[-3:]
    masks = masks_of(y.reshape(1, -1, c, h, w), "masks" if c == 1 else "classes")
    return masks.any(dim=2).reshape(*y.shape[:-3], h, w).cpu().numpy()


def show_slice(ax: Axes, x: Float[np.ndarray, "h w *rgb"], window: Bbox | None = None) -> None:
    """A slice or a part of it, without a frame."""
    ax.imshow(x, cmap="gray", vmin=0, vmax=1)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    if window is not None:
        ax.set(xlim=(window.x0, window.x1), ylim=(window.y1, window.y0))


def show_frame(ax: Axes, window: Bbox) -> None:
    """The frame of a close-up in the slice that it is a part of, unless it is all of it."""
    if window.height < abs(np.subtract(*ax.get_ylim())):
        ax.add_patch(Rectangle(window.p0, *window.size, fill=False, ec="white", lw=0.6))


def show_picture(ax: Axes, image: Float[Tensor, "c h w"]) -> None:
    """Grey values, colours, or (with one channel per class) the class of each pixel."""
    values = image.detach().cpu().float().clamp(0, 1)
    if values.shape[0] == 3:
        ax.imshow(values.permute(1, 2, 0).numpy())
    elif values.shape[0] == 1:
        ax.imshow(values[0].numpy(), cmap="gray", vmin=0, vmax=1)
    else:
        ax.imshow(values.argmax(dim=0).numpy(), cmap="tab10", vmin=0, vmax=9)
    ax.set(xticks=[], yticks=[])


def show_mask(
    ax: Axes, mask: Bool[np.ndarray, "h w"], members: Bool[np.ndarray, "m h w"], colour: str
) -> None:
    """The outline of a mask, with those of its members as fine lines behind it; or "empty"."""
    for member in members:
        if member.any():
            show_contour(ax, member, colour, 0.45)
    if mask.any():
        show_contour(ax, mask, colour, 1.2, fill=0.25)
    else:
        annotate(ax, "empty", (0.5, 0.0), 3.0, ha="center", fontsize=SMALL, **_NOTE)


def show_blank(ax: Axes, shape: tuple[int, int]) -> None:
    """Nothing, in a panel of the shape h w."""
    ax.set_box_aspect(shape[0] / shape[1])
    ax.set_axis_off()


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


def show_prob(ax: Axes, prob: float, colour: str) -> None:
    """A probability below a panel: a bar, of which the whole width is 1, and the number."""
    below = ax.transAxes + ScaledTranslation(0, -3.5 / 72, ax.figure.dpi_scale_trans)
    style: Any = {"linewidth": 3, "solid_capstyle": "butt", "clip_on": False, "transform": below}
    ax.add_artist(Line2D([0, 1], [0, 0], color=GRID, **style))
    ax.add_artist(Line2D([0, prob], [0, 0], color=colour, **style))
    note = f"{prob:.3f}" if prob >= 5e-4 else f"{prob:.0e}"
    ax.set_xlabel(note, fontsize=SMALL, color=INK, labelpad=8)


def annotate(ax: Axes, text: str, at: tuple[float, float], up: float, **style: Any) -> Annotation:
    """A text `up` points above a place in a panel, given as fractions of its width and height."""
    units: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
    return ax.annotate(text, at, (0, up), **units, **style)


def is_ranked(modes: Modes) -> bool:
    """Whether probabilities rank the answers: not where each is one sample, member or head."""
    return bool((modes.answer_code >= 0).all() or modes.tree.height.isfinite().any())


def shorten(name: str, max_length: int = 26) -> str:
    """The end of a name: where names are long, they differ there."""
    return name if len(name) <= max_length else f"…{name[1 - max_length :]}"
