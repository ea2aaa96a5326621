"""`mue data import folder`: images and masks of several raters, from files of any kind."""

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from mue.commands.imported import ImportResult, imported
from mue.commands.progress import Progress
from mue.data.folder import layout
from mue.data.folder.description import read_description
from mue.data.folder.importer import encode_cases, is_ct
from mue.data.folder.patients import with_patients
from mue.data.images.image import Axis
from mue.data.order import natural
from mue.data.prepared.encode import Encoded
from mue.data.prepared.format import KNOWN
from mue.data.prepared.item import Rejected
from mue.data.prepared.splits import split_of
from mue.data.prepared.write import write_prepared
from mue.errors import MueError


def import_folder(
    source: str | Path,
    *,
    out: str | Path,
    image: str | None = None,
    mask: str | None = None,
    patient: str | None = None,
    splits: str | Path | None = None,
    axis: Axis = 2,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> ImportResult:
    """Prepare images and the masks of their raters, in a new folder, whole or not at all.

    The source is in nnU-Net's layout with a mask for each rater (imagesTr/CASE_0000.png,
    labelsTr/CASE_r0.png, labelsTr/CASE_r1.png), or `image` and `mask` say where its files are.

    Args:
        source: The folder.
        out: The new folder.
        image: Pattern of the images, such as 'images/{case}.jpg'; {channel} if they are apart,
            {patient} (in `mask` too) where patients have cases of one name.
        mask: Pattern of the masks, such as 'masks/{case}_{rater}.png', or without {rater} of one.
        patient: Pattern of the names of cases, such as '{patient}-*'; by default each is its own.
        splits: Table with the columns case (or patient) and split; by default a hash decides.
        axis: The axis 0, 1 or 2 of a volume along which it is cut into slices.
        skip_bad: Leave out what cannot be imported, instead of refusing it all.
        progress: Called with a name, the number of cases read so far, and of all.
    """
    folder, found = Path(out), Path(source)
    if not found.is_dir():
        raise MueError(f"there is no folder {found} to import; unpack it if it is an archive")
    description = read_description(found)
    if (image is None) != (mask is None):
        raise MueError("name both --image and --mask, or neither for a folder in nnU-Net's layout")
    if patient is not None and image is not None and "{patient}" in image:
        raise MueError("name patients by --patient, or by {patient} in --image and --mask")
    if image is None or mask is None:
        cases = layout.find_by_layout(found, description)
    else:
        cases = layout.find_by_patterns(found, image, mask, description)
    cases = with_patients(cases, patient, Path(splits) if splits else None)

    def show(done: int, total: int) -> None:
        if progress is not None:
            progress("cases", done, total)

    origin = {
        "form": "folder",
        "sources": [found.resolve().name],
        "image": image,
        "mask": mask,
        "patient": patient,
        "splits": Path(splits).name if splits else None,
        "axis": axis,
        KNOWN: description.known,
    }
    cases.sort(key=_name)  # as they are stored, so that nothing is written twice
    items = encode_cases(cases, found, description, axis=axis, progress=show)
    with warnings.catch_warnings(), contextlib.closing(items):
        warnings.simplefilter("ignore")  # of libraries, about what they read nevertheless
        rejected = write_prepared(
            _with_training(items),
            folder,
            origin,
            labels=tuple(description.labels),
            values=tuple(description.labels.values()),
            ct=is_ct(cases, found, description),
            skip_bad=skip_bad,
        )
    return imported(folder, rejected)


def _name(case: layout.CaseFiles | Rejected) -> list[tuple[int, int, str, str]]:
    parts = (case.patient, case.case) if isinstance(case, layout.CaseFiles) else (case.what,)
    return natural(*parts)


def _with_training(items: Iterable[Encoded | Rejected]) -> Iterator[Encoded | Rejected]:
    """The items; that none of them is for training is an error after the last."""
    splits: Counter[str] = Counter()
    for item in items:
        if isinstance(item, Encoded):
            splits[item.row.split or split_of(item.row.patient)] += 1
        yield item
    if splits and not splits["train"]:
        counts = ", ".join(f"{count} in {split}" for split, count in sorted(splits.items()))
        raise MueError(
            f"there must be a case for training, and there is none ({counts}); say by --splits "
            "which cases are"
        )
