"""Which files and images a folder holds, and in which order.

Links are followed, hidden files are left out, and names are in natural order.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from mue.data.images.formats import DICOM, image_ending, is_dicom
from mue.data.order import natural
from mue.errors import ReadError

_LEFT_OUT = ("DICOMDIR", "__MACOSX")
_OTHER_ENDINGS = (".json", ".txt", ".csv", ".md")  # of files whose content is not looked at


def is_hidden(name: str) -> bool:
    """Whether a file or folder is left out: hidden, an index of DICOM files, or added by macOS."""
    return name.startswith(".") or name in _LEFT_OUT


def walk(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Each folder from the top down, the names of the folders in it, and of its files.

    What is taken out of the list of folders is not walked, as with `os.walk`.

    Raises:
        ReadError: A folder is reached twice through links, as in a circle.
    """
    seen: set[str] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(parent)) in seen:
            raise ReadError(parent, "is reached twice through links; remove a link")
        seen.add(real)
        for names in (folders, files):
            names[:] = sorted((name for name in names if not is_hidden(name)), key=natural)
        yield Path(parent), folders, files


def files_in(folder: Path) -> list[Path]:
    """The files that a folder holds directly."""
    names = sorted((p.name for p in folder.iterdir() if not is_hidden(p.name)), key=natural)
    return [path for name in names if (path := folder / name).is_file()]


def files_below(folder: Path) -> Iterator[Path]:
    """The plain files in a folder and in those below it."""
    for here, _, names in walk(folder):
        yield from (path for name in names if (path := here / name).is_file())


def dicom_files(folder: Path) -> list[Path]:
    """The files of the DICOM series that a folder holds."""
    return [path for path in files_in(folder) if _is_dicom(path)]


def find_images(folder: Path, *, without: str) -> Iterator[Path]:
    """The images below a folder: files, and folders that hold one DICOM series each.

    A folder that holds a file of the name `without` is left out.
    """
    for here, folders, names in walk(folder):
        folders[:] = [name for name in folders if not (here / name / without).exists()]
        files = [here / name for name in names]
        slices = dict.fromkeys(path for path in files if _is_dicom(path))
        series = _is_series(list(slices))
        if series:
            yield here
        for path in files:
            if not series if path in slices else image_ending(path.name):
                yield path


def _is_dicom(path: Path) -> bool:
    """Whether a file is DICOM by its name, or by its content, as scanners and archives name it."""
    name = path.name.lower()
    if image_ending(name) or name.endswith(_OTHER_ENDINGS) or not path.is_file():
        return name.endswith(DICOM.endings)
    return is_dicom(path)


def _is_series(files: Sequence[Path]) -> bool:
    """Whether there are several slices of one series, or of some: only the reader says which."""
    uids = [_series_uid(p) for p in files] if len(files) > 1 else []
    return len(set(uids)) < len(uids)


def _series_uid(path: Path) -> str:
    """The series that a DICOM file names; of a damaged one its own path."""
    from mue.data.images.dicom import read_series_uid

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read_series_uid(path)
    except Exception:  # it is read again, and then refused with a reason
        return str(path)
