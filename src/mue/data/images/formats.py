"""What a file is: the one table of the formats that are read.

A new format is a line here and a module in this folder with a function `read`, whose errors are
clauses that follow on the file's name. These modules are imported when they are first used: the
libraries of TIFF, NIfTI and DICOM take a third of a second.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mue.data.images.image import ImageFile, RawImage, SeriesInMemory

HEAD = 132
"""Bytes of a file that say what it is."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format: how its files begin and are called, and what reads them.

    Attributes:
        read: Takes a file, the `axis` that a volume is cut along, and whether it is a `mask`.
        endings: Of names, in lower case.
        beginnings: Of the content, one of these, from the byte `at` on.
        by_name: Whether a file is taken for one by its name, where its content says nothing.
    """

    name: str
    read: Callable[..., RawImage]
    endings: tuple[str, ...]
    beginnings: tuple[bytes, ...] = ()
    at: int = 0
    by_name: bool = False

    def begins(self, head: bytes) -> bool:
        """Whether the first bytes of a file are those of this format."""
        return head.startswith(self.beginnings, self.at)


def _by(module: str) -> Callable[..., RawImage]:
    """The function `read` of a module in this folder."""

    def read(file: ImageFile | SeriesInMemory, **how: Any) -> RawImage:
        return importlib.import_module(f"mue.data.images.{module}").read(file, **how)

    return read


PNG = Format("PNG", _by("png"), (".png",), (b"\x89PNG\r\n\x1a\n",))
DICOM = Format("DICOM", _by("dicom"), (".dcm", ".dicom", ".ima"), (b"DICM",), at=128, by_name=True)
FORMATS = [
    PNG,
    Format("JPEG", _by("pillow"), (".jpg", ".jpeg"), (b"\xff\xd8\xff",)),
    Format("GIF", _by("pillow"), (".gif",), (b"GIF8",)),
    Format("BMP", _by("pillow"), (".bmp",), (b"BM",)),
    Format("WebP", _by("pillow"), (".webp",), (b"RIFF",)),
    Format("TIFF", _by("tiff"), (".tif", ".tiff"), (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    Format("NIfTI", _by("nifti"), (".nii", ".nii.gz"), by_name=True),
    DICOM,
    Format("npy", _by("npy"), (".npy",), (b"\x93NUMPY",)),
]


def format_of(name: str, head: bytes) -> Format | None:
    """The format of a file by its first bytes, or else by its name; None for any other file.

    Ahead of the mark of DICOM, a scanner may write the header of a TIFF: the last mark counts.
    """
    if found := [form for form in FORMATS if form.begins(head)]:
        return max(found, key=lambda form: form.at)
    return next((f for f in FORMATS if f.by_name and name.lower().endswith(f.endings)), None)


def is_dicom(file: ImageFile) -> bool:
    """Whether a file begins as DICOM does."""
    with file.open("rb") as opened:
        return DICOM.begins(opened.read(HEAD))


def image_ending(name: str) -> str:
    """The ending by which a name is that of an image file, as it is written; "" of any other."""
    endings = (ending for form in FORMATS for ending in form.endings)
    length = max((len(e) for e in endings if name.lower().endswith(e)), default=0)
    return name[len(name) - length :]
