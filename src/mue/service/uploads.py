"""From the bytes of an upload to the input of a network, without a file on disk."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from jaxtyping import Shaped

from mue.data.images.formats import is_dicom
from mue.data.images.image import FileInMemory, Limits, RawImage, SeriesInMemory, limited
from mue.data.images.reader import decode_file
from mue.errors import MueError
from mue.inference.inputs import with_channels
from mue.inference.writers import FORMATS
from mue.service.settings import Settings

if TYPE_CHECKING:
    ExportFormat = str
else:  # what is no file for other programs is on the page, and what /api/propose answers
    ExportFormat = Literal[tuple(name for name in FORMATS if name not in ("png", "json"))]


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """The slice of an uploaded image or volume that is asked for, with the channels of a model.

    The volume itself is let go: many requests may wait.
    """

    raw: RawImage  # of one slice, where it was in the volume
    index: int
    slices: int
    has_own_file: bool  # rather than being one of several slices in a file

    @property
    def pixels(self) -> Shaped[np.ndarray, "c h w"]:
        """The slice, in the values of its file."""
        return self.raw.pixels[:, 0]

    @property
    def formats(self) -> list[ExportFormat]:
        """What its masks can be exported as: NIfTI in space, DICOM SEG that refers to its file."""
        (file, *_), in_space = self.raw.files, self.raw.geometry is not None
        own = self.has_own_file and isinstance(file, FileInMemory) and is_dicom(file)
        unfit = {"nifti": not in_space, "dicom-seg": not (in_space and own)}
        return [name for name in get_args(ExportFormat) if not unfit.get(name)]


def read_upload(
    files: Sequence[tuple[str, bytes]], index: int | None, channels: int, settings: Settings
) -> Upload:
    """An image by its content, or a DICOM series; of a volume the slice `index`, or the middle.

    The slices of a series come in the order of their positions, whatever that of the files.
    """
    source = _source([FileInMemory(_label(name), content) for name, content in files])
    with limited(Limits(settings.pixels, settings.volume)):
        raw = decode_file(source)
    raw = with_channels(raw, channels, source.name)
    count = raw.pixels.shape[1]
    if count > settings.slices:
        raise MueError(f"{source} has {count} slices; {settings.slices} are read; divide it")
    at = count // 2 if index is None else index
    if not 0 <= at < count:
        raise MueError(f"`slice` must be in 0..{count - 1} (the slices of {source}), got {at}")
    return Upload(_slice(raw, at), at, count, has_own_file=len(raw.files) == count)


def _label(name: str) -> str:
    """The name of a file without what a client put before it or hid in it."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(c for c in last if c.isprintable())[-80:] or "the upload"


def _source(files: Sequence[FileInMemory]) -> FileInMemory | SeriesInMemory:
    """A file, or the slices of a series."""
    if empty := [f for f in files if not f.content]:
        raise MueError(f"`file` must be an image file, and {empty[0]} has no content")
    if len(files) == 1:
        return files[0]
    for file in files:
        if not is_dicom(file):
            raise MueError(
                f"several files must be the slices of one DICOM series, and {file} is not DICOM; "
                "send one image at a time"
            )
    return SeriesInMemory(f"the upload of {len(files)} files", tuple(files))


def _slice(raw: RawImage, index: int) -> RawImage:
    """A slice as a volume of its own, where it was in the volume; of a series with its file."""
    geometry, files = raw.geometry, raw.files
    if geometry is not None:
        affine, shape = np.array(geometry.affine), list(geometry.shape)
        affine[:3, 3] += affine[:3, geometry.axis] * index
        shape[geometry.axis] = 1
        geometry = replace(geometry, affine=affine, shape=(shape[0], shape[1], shape[2]))
    if len(files) == raw.pixels.shape[1]:
        files = (files[index],)
    pixels = np.array(raw.pixels[:, index : index + 1])
    return RawImage(pixels, geometry, files, raw.bits)
