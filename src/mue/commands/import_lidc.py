"""`mue data import lidc`: LIDC-IDRI in any of its forms, as prepared slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mue.data.lidc.importer import detect_form, read_items
from mue.data.lidc.options import Options
from mue.data.prepared.item import Rejected
from mue.data.prepared.store import open_prepared, write_prepared
from mue.data.prepared.summary import DataSummary, summarize


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What was imported.

    Attributes:
        summary: What the prepared slices hold.
        rejected: What could not be imported.
    """

    summary: DataSummary
    rejected: tuple[Rejected, ...]


def import_lidc(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    size: int | None = None,
    window: tuple[float, float] | None = None,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ImportResult:
    """Prepare LIDC-IDRI from any of its four forms, in a new folder, whole or not at all.

    Args:
        sources: Folders, archives or pickles, all of one form.
        out: The folder to write.
        size: Side of the crops; None keeps images as they are, and is 128 for DICOM.
        window: Hounsfield units of black and white (DICOM); None scales each crop by its own range.
        skip_bad: Leave out what cannot be imported, instead of refusing it all.
        progress: Called with the bytes of the sources read so far and in all.
    """
    paths = [Path(source) for source in sources]
    options = Options(size=size, window=window)
    form = detect_form(paths)
    origin = {
        "collection": "LIDC-IDRI",
        "form": form,
        "sources": sorted(path.resolve().name for path in paths),
        "size": size,
        "window": None if window is None else list(window),
    }
    items = read_items(paths, form, options, progress)
    rejected = write_prepared(items, Path(out), origin, skip_bad=skip_bad)
    return ImportResult(summarize(open_prepared(out)), rejected)
