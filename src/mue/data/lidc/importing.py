"""From files as people have them to prepared slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mue.data.lidc.options import Options
from mue.data.lidc.read import read, recognise
from mue.data.prepared.store import Summary, write
from mue.errors import MueError


def import_lidc(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    size: int | None = None,
    window: tuple[float, float] | None = None,
    skip_bad: bool = False,
    watch: Callable[[int, int], None] | None = None,
) -> Summary:
    """Prepare LIDC-IDRI from any of its four forms, in a new folder, whole or not at all.

    Args:
        sources: Folders, archives or pickles, all of one form.
        out: The folder to make.
        size: Side of the crops; None keeps images as they are, and is 128 for DICOM.
        window: Hounsfield units of black and white (DICOM); None scales each crop by its own range.
        skip_bad: Leave out what cannot be imported, instead of refusing it all.
        watch: Told how many bytes of the sources are read, of how many.
    """
    paths = [Path(source) for source in sources]
    options = Options(size=size, window=window)
    for path in paths:
        if not path.exists():
            raise MueError(f"there is no file or folder {path} to import")
    form = recognise(paths)
    origin = {
        "collection": "LIDC-IDRI",
        "form": form,
        "sources": sorted(path.resolve().name for path in paths),
        "size": size,
        "window": None if window is None else list(window),
    }
    return write(read(paths, form, options, watch), Path(out), origin, skip_bad=skip_bad)
