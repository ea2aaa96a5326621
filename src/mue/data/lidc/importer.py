"""LIDC-IDRI in any of its forms."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from mue.data.lidc import Window, archive, dicom, pickled, png
from mue.data.prepared.item import Item, Key, Rejected
from mue.errors import MueError

Form = Literal["slices", "crops", "pickle", "dicom"]
_KNOWN_FORMS = (
    "LIDC-IDRI-XXXX/nodule-N/{images,mask-0..3}/slice-K.png, {train,val,test}/images/….png with "
    "gt/…_l0.png to _l3.png, a .pickle, and .dcm with XML, in a folder or a .tar.gz"
)


def detect_form(sources: Sequence[Path]) -> Form:
    """The form that all the sources are in, by the names of their files."""
    sources = archive.expand_sources(sources)
    if not sources:
        raise MueError("name at least one file or folder to import")
    form = _form_of_source(sources[0])
    for source in sources[1:]:
        if (other := _form_of_source(source)) != form:
            raise MueError(
                f"import sources of one form at a time: {sources[0].name} is {form}, "
                f"{source.name} is {other}"
            )
    return form


def _form_of_source(source: Path) -> Form:
    name, damage = source.name.lower(), ""
    if source.is_file() and name.endswith(archive.PICKLES):
        return "pickle"
    if source.is_dir() or name.endswith(archive.ARCHIVES):
        for file in archive.iterate_files(
            source, lambda name: 1 if _form_of_file(name) else 0, lambda _: None
        ):
            if isinstance(file, Rejected):
                damage = f" ({file.what} {file.why})"
            elif form := _form_of_file(file.name):
                return form
    raise MueError(f"{source} is not LIDC-IDRI in a known form{damage}; looked for {_KNOWN_FORMS}")


def _form_of_file(name: str) -> Form | None:
    """The form that a file belongs to; `images/` is in both PNG layouts, slices are tried first."""
    if png.parse_slices(name) is not None:
        return "slices"
    if png.parse_crops(name) is not None:
        return "crops"
    return "dicom" if name.lower().endswith(".dcm") else None


def read_items(
    sources: Sequence[Path],
    form: Form,
    *,
    size: int | None = None,
    window: Window = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Item | Rejected]:
    """The slices of LIDC-IDRI with the masks of their raters, in no particular order.

    What cannot be imported comes between them as a `Rejected`; one with a key takes back an item
    that came before.

    `sources` are folders, archives or pickles, all of the form that `detect_form` returned; a
    folder that directly holds archives stands for these. `size` is the side of the crops; None
    keeps images as they are, and is 128 for DICOM. `window` is for DICOM alone. `progress` is
    called with the bytes of the sources read so far and in all.

    Raises:
        MueError: The crop or window is empty. A source is malicious: a path that leaves its
            archive, a pickle that names a function.
    """
    if size is not None and size < 1:
        raise MueError(f"`size`, the side of a crop, must be at least 1, got {size}")
    if window is not None and not -math.inf < window[0] < window[1] < math.inf:
        low, high = window
        raise MueError(
            f"`window` must be two Hounsfield units, the lower one first, got {low} {high}"
        )
    if window is not None and form != "dicom":
        raise MueError(
            f"`window` needs Hounsfield units, which only DICOM has; the source is {form}"
        )
    sources = archive.expand_sources(sources)
    done, total = 0, archive.total_bytes(sources) * (2 if form == "dicom" else 1)  # passes

    def count(read: int) -> None:
        nonlocal done
        done = min(done + read, total)
        if progress is not None and read:
            progress(done, total)

    if form == "dicom":
        yield from dicom.read(sources, size, window, count)
        return
    parse = png.parse_slices if form == "slices" else png.parse_crops
    source_of: dict[Key, Path] = {}
    for source in sources:
        for item in (
            pickled.read(source, size, count)
            if form == "pickle"
            else png.read(source, parse, size, count)
        ):
            key, what = item.key, item.source if isinstance(item, Item) else item.what
            if key in source_of and (source_of[key] != source or isinstance(item, Item)):
                item = Rejected(what, f"is a slice that {source_of[key].name} has already brought")
            elif key is not None:
                source_of[key] = source
            yield item
