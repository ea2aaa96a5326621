"""Colours, axes and files of all figures."""

from __future__ import annotations

import io
from pathlib import Path

from jaxtyping import Float
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogFormatter
from PIL import Image
from torch import Tensor

from mue.atomic import write_atomic

INK, BLUE, RED, GREY, GREEN = "#1b1b1f", "#2f6fb0", "#c8452d", "#8a8a94", "#3f8f5b"
GRID = "#e6e6ea"
MODEL_COLOURS = (BLUE, RED, GREEN, "#8a5aa8", "#c48a1a", INK)


def save_figure(figure: Figure, path: Path, *, dpi: int = 150) -> Path:
    """Write a figure as PNG, whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, facecolor="white", metadata={"Software": "mue"})
    write_atomic(path, buffer.getvalue())
    return path


def save_image(image: Float[Tensor, "c h w"], path: Path) -> Path:
    """Write an answer as PNG: grey values, colours, or the number of each pixel's class."""
    picture = image.detach().cpu().float()
    if picture.shape[0] in (1, 3):
        array = (picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).squeeze(2).numpy()
    else:
        array = picture.argmax(dim=0).byte().numpy()
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG")
    write_atomic(path, buffer.getvalue())
    return path


class _Plain(LogFormatter):
    """0.6 where it would say 6e-01, and nothing where it would say nothing."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def plain_log_labels(axis: Axis) -> None:
    """Write 0.01 and 1000 on a logarithmic axis, and little between them."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(_Plain(minor_thresholds=(1.2, 0.5)))
