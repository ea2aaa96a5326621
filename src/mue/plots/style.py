"""What all figures share: colours, fonts, axes, legends and files."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from PIL import Image, ImageColor
from torch import Tensor

from mue.errors import printable
from mue.runtime.atomic import write_atomic

Grid = Literal["both", "x", "y"]
INK, BLUE, RED, GREY, GREEN = "#1b1b1f", "#2f6fb0", "#c8452d", "#8a8a94", "#3f8f5b"
GRID = "#e6e6ea"
MODEL_COLOURS = (BLUE, RED, GREEN, "#8a5aa8", "#c48a1a", INK)
MASK_COLOURS = ("#ffd02e", "#35e0ff", "#ff6ad5", "#8bf06b", "#ff8a3d", "#b9a2ff", "#ffffff")
"""Of classes, or of raters where there is one class: bright, to be seen on any image."""
SMALL = 7
"""Points of notes inside and at small panels; other text has 8, headings 9 and the title 10."""


@contextmanager
def new_figure(
    title: str, size: tuple[float, float] | None = None, *, edge: str = GREY
) -> Iterator[Figure]:
    """A figure of `size` inches, to be filled in a `with` block; the title is added at its end.

    `$` in a text is a dollar sign, not the start of a formula: names come from files.
    """
    with mpl.rc_context(
        {
            "font.size": 8,
            "axes.titlesize": 9,
            "axes.edgecolor": edge,
            "legend.fontsize": 8,
            "legend.frameon": False,
            "text.parse_math": False,
        }
    ):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        wrap = "$" not in title  # where it wraps, matplotlib would take it for a formula
        lines = "\n".join(map(printable, title.split("\n")))
        figure.suptitle(lines, fontsize=10, wrap=wrap)


def style_axes(ax: Axes, *, grid: Grid = "both", hidden: Sequence[str] = ("top", "right")) -> None:
    """A light grid behind the data, and no lines on the sides named by `hidden`."""
    ax.grid(axis=grid, color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[list(hidden)].set_visible(False)


def legend_below(figure: Figure, columns: int, handles: Sequence[Artist] | None = None) -> None:
    """A legend below all panels, by default of what has a label in the first of them."""
    shown = figure.axes[0].get_legend_handles_labels()[0] if handles is None else handles
    figure.legend(handles=shown, loc="outside lower center", ncols=columns)


def mask_colours(count: int) -> list[str]:
    """A colour for each class or rater, the same in every figure."""
    return list(itertools.islice(itertools.cycle(MASK_COLOURS), count))


def model_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each model by its position, so that it is the same in every figure."""
    return dict(zip(names, itertools.cycle(MODEL_COLOURS), strict=False))


class _PlainLogFormatter(LogFormatter):
    """0.6 instead of 6e-01, at the ticks that `LogFormatter` labels."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def plain_log_labels(axis: Axis) -> None:
    """Write 0.01 and 1000 on a logarithmic axis, and few labels between the powers of ten."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(_PlainLogFormatter(minor_thresholds=(1.2, 0.5)))


def figure_png(figure: Figure, *, dpi: int = 150) -> bytes:
    """A figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, facecolor="white", metadata={"Software": "mue"})
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path, *, dpi: int = 150) -> Path:
    """Write a figure as PNG, whole or not at all."""
    write_atomic(path, figure_png(figure, dpi=dpi))
    return path


def image_png(
    image: Float[Tensor, "c h w"], *, classes: bool = False, class_values: Sequence[int] = ()
) -> bytes:
    """An answer as PNG: grey values, colours, or the value of each pixel's class.

    With `classes` the channels are their probabilities. Their values, by default their numbers, are
    indices of a palette, so that a viewer shows them in the colours that masks have in every
    figure; values beyond 255 are 16 bits of grey.
    """
    values = image.detach().cpu().float()
    if classes or len(values) not in (1, 3):
        of_class = np.array(class_values or range(len(values)))
        depth = np.uint8 if of_class.max() < 256 else np.uint16
        picture = Image.fromarray(of_class.astype(depth)[values.argmax(dim=0).numpy()])
        if depth is np.uint8:
            colours = ["#000000"] * (int(of_class.max()) + 1)
            for value, colour in zip(of_class[1:], mask_colours(len(values) - 1), strict=True):
                colours[value] = colour
            picture.putpalette([part for c in colours for part in ImageColor.getrgb(c)])
    else:
        array = (values.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).squeeze(2).numpy()
        picture = Image.fromarray(array)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()
