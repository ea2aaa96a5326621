"""`mue data export`: prepared images as files, as `mue data import folder` reads them."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from mue.commands.progress import Progress
from mue.data.folder.exporter import export_cases
from mue.data.images.walk import files_below
from mue.data.prepared.open import open_prepared, verify_prepared


@dataclass(frozen=True, slots=True)
class ExportedFolderResult:
    """The new folder, its files, and the command that imports it again."""

    folder: Path
    files: tuple[Path, ...]
    command: str


def export_folder(
    data: str | Path, *, out: str | Path, progress: Progress | None = None
) -> ExportedFolderResult:
    """Write prepared images and the masks of their raters as files, in nnU-Net's layout.

    Nothing is lost: pictures are PNG or TIFF, volumes NIfTI with their affine. What is imported
    from the new folder has the same pixels, masks, raters, patients and splits.

    Args:
        data: Folder of prepared images.
        out: The new folder.
        progress: Called with a name, the number of cases written so far, and of all.
    """
    folder = Path(out)

    def show(done: int, total: int) -> None:
        if progress is not None:
            progress("cases", done, total)

    verify_prepared(data)
    options = export_cases(open_prepared(data), folder, progress=show)
    command = ["mue", "data", "import", "folder", str(folder), *options]
    again = shlex.join([*command, "--out", f"{folder}-prepared"])
    return ExportedFolderResult(folder, tuple(files_below(folder)), again)
