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
