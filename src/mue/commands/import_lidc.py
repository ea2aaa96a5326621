"""`mue data import lidc`: LIDC-IDRI in any of its forms, as prepared slices."""

from pathlib import Path

from mue.commands.imported import ImportResult, imported
from mue.commands.paths import Paths, paths_of
from mue.commands.progress import Progress
from mue.data.lidc.importer import detect_form, read_items
from mue.data.prepared.write import write_prepared
from mue.runtime.atomic import check_new_folder


def import_lidc(
    sources: Paths,
    *,
    out: str | Path,
    size: int | None = None,
    window: tuple[float, float] | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> ImportResult:
    """Prepare LIDC-IDRI from any of its four forms, in a new folder, whole or not at all.

    Args:
        sources: Folders, archives or pickles, all of one form.
        out: The new folder.
        size: Side of the crops; None keeps images as they are, and is 128 for DICOM.
        window: Hounsfield units of black and white (DICOM); None scales each crop by its own range.
        skip_bad: Leave out what cannot be imported, instead of refusing it all.
        progress: Called with a name, the MiB of the sources read so far, and of all.
    """
    folder, paths = Path(out), paths_of(sources, "sources")
    check_new_folder(folder)
    form = detect_form(paths)
    origin = {
        "collection": "LIDC-IDRI",
        "form": form,
        "sources": sorted(path.resolve().name for path in paths),
        "size": size,
        "window": None if window is None else list(window),
    }

    def show(done: int, total: int) -> None:
        if progress is not None:
            progress("lidc, MiB", done >> 20, max(1, total >> 20))

    items = read_items(paths, form, size=size, window=window, progress=show)
    rejected = write_prepared(items, folder, origin, skip_bad=skip_bad)
    return imported(folder, rejected)
