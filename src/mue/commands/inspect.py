"""`mue data inspect`: what prepared slices hold."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mue.data.images.formats import HEAD, PNG
from mue.data.prepared.disagreement import Disagreement, disagreement
from mue.data.prepared.open import open_prepared
from mue.data.prepared.summary import DataSummary, summarize
from mue.errors import MueError
from mue.runtime.atomic import check_folder

_SHEET = 24  # slices on a contact sheet


@dataclass(frozen=True, slots=True)
class InspectionResult:
    """The folder of prepared slices, what it holds, and the contact sheet."""

    folder: Path
    summary: DataSummary
    disagreement: Disagreement
    files: tuple[Path, ...]


def inspect(
    data: str | Path, out: str | Path | None = None, *, verify: bool = False
) -> InspectionResult:
    """Say what prepared images hold, how much raters differ, what is wrong; plot a contact sheet.

    Args:
        data: Folder of prepared slices.
        out: The contact sheet, by default `runs/NAME-sheet.png`.
        verify: Whether to read everything and compare it with the digests from the import.
    """
    from mue.plots.contact_sheet import plot_contact_sheet
    from mue.plots.style import save_figure

    folder = Path(data)
    path = Path(out) if out else Path("runs") / f"{folder.resolve().name}-sheet.png"
    check_sheet(path)
    prepared = open_prepared(data, verify=verify)
    rows = prepared.rows
    shown = np.unique(np.linspace(0, len(rows) - 1, _SHEET).round().astype(int)).tolist()
    sheet = plot_contact_sheet(
        [prepared.image(i) for i in shown],
        [prepared.masks_of(i) for i in shown],
        [rows[i].id for i in shown],
        f"{folder.name}: {len(shown)} of {len(rows)} slices",
        prepared.meta.labels,
    )
    return InspectionResult(
        folder, summarize(prepared), disagreement(prepared), (save_figure(sheet, path),)
    )


def check_sheet(path: Path) -> None:
    """Refuse to put a contact sheet in the place of anything but another picture."""
    if path.suffix.lower() != ".png" or (path.exists() and not path.is_file()):
        raise MueError(f"`out` must name a file that ends in .png, got {path}")
    if path.is_file():
        with path.open("rb") as file:
            if not PNG.begins(file.read(HEAD)):
                raise MueError(f"`out` must name a new file, and {path} is there and no PNG")
    check_folder(path.parent)
