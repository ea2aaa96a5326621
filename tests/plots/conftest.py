from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from PIL import Image

from mue.plots.style import save_figure


@pytest.fixture
def words() -> Callable[[Figure | Axes], list[str]]:
    """Every text in a figure or a panel."""

    def read(artist: Figure | Axes) -> list[str]:
        if isinstance(artist, Figure):
            artist.draw_without_rendering()  # which writes the labels of ticks
        found = artist.findobj(lambda part: isinstance(part, Text))
        return [t.get_text() for t in found if isinstance(t, Text) and t.get_text()]

    return read


@pytest.fixture
def pixels(tmp_path: Path) -> Callable[[Figure], np.ndarray]:
    """The figure as it is saved."""

    def render(figure: Figure) -> np.ndarray:
        path = tmp_path / "new" / "figure.png"
        assert save_figure(figure, path, dpi=60) == path
        with Image.open(path) as file:
            assert file.format == "PNG"
            return np.asarray(file.convert("RGB"))

    return render


@pytest.fixture
def at() -> Callable[[Line2D], tuple[list[float], list[float]]]:
    """Where a line goes."""

    def values(line: Line2D) -> tuple[list[float], list[float]]:
        x, y = line.get_xdata(), line.get_ydata()
        return np.asarray(x, dtype=float).tolist(), np.asarray(y, dtype=float).tolist()

    return values


@pytest.fixture
def bars() -> Callable[[Axes], list[float]]:
    """How long the bars below a panel are, as shares of its width."""

    def lengths(ax: Axes) -> list[float]:
        lines = (part for part in ax.get_children() if isinstance(part, Line2D))
        return [float(np.ptp(np.asarray(line.get_xdata(), dtype=float))) for line in lines]

    return lengths


@pytest.fixture
def overlapping() -> Callable[[Figure], list[tuple[str, str]]]:
    """Pairs of texts that overlap."""

    def pairs(figure: Figure) -> list[tuple[str, str]]:
        figure.draw_without_rendering()
        hidden = {  # labels of ticks outside of what is shown are not drawn
            tick.label1
            for ax in figure.axes
            for axis in (ax.xaxis, ax.yaxis)
            for tick in axis.get_major_ticks()
            if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        }
        found = figure.findobj(lambda part: isinstance(part, Text) and part.get_visible())
        texts = [t for t in found if isinstance(t, Text) and t.get_text() and t not in hidden]
        boxes = [t.get_window_extent() for t in texts]
        return [
            (texts[i].get_text(), texts[j].get_text())
            for i, a in enumerate(boxes)
            for j, b in enumerate(boxes[:i])
            if a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1
        ]

    return pairs
