"""Image files of any kind, by what they hold rather than by what they are called."""

import stat
import warnings
from pathlib import Path

from mue.data.images.formats import DICOM, FORMATS, HEAD, format_of
from mue.data.images.image import (
    MAX_BYTES,
    Axis,
    ImageFile,
    RawImage,
    SeriesInMemory,
    open_bounded,
)
from mue.errors import MueError, ReadError

_NESTED = "is nested too deeply to be read"


def read_image_file(path: str | ImageFile, *, axis: Axis = 2) -> RawImage:
    """An image, a volume, or the DICOM series in a folder, with the values of its files.

    Pictures of fewer than 8 bits are scaled to 8.

    The formats are those of `FORMATS`. `axis` is the one of (i, j, k) that a volume is cut into
    slices along; a single slice stays one. Pictures are turned as EXIF says.

    Raises:
        ReadError: The file is missing, damaged, too large, animated or of another kind.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, about what they read nevertheless
        return decode_file(Path(path) if isinstance(path, str) else path, axis=axis)


def decode_file(
    path: ImageFile | SeriesInMemory, *, axis: Axis = 2, mask: bool = False
) -> RawImage:
    """The same, leaving warnings as they are, so that threads can call it.

    With `mask`, one value for each pixel: of a palette with colours the indices, of grey as RGB or
    with opacity the grey.
    """
    if axis not in (0, 1, 2):
        raise MueError(f"`axis` must be 0, 1 or 2, the one that volumes are cut along, got {axis}")
    try:
        return _decode(path, axis, mask)
    except MueError as error:
        raise ReadError(path, str(error)) from None
    except OSError as error:
        why = f"cannot be read: {error.strerror or _brief(error)}"
        if isinstance(error.__context__, RecursionError):  # which pydicom takes for an end
            why = _NESTED
        raise ReadError(path, why) from None
    except RecursionError:
        raise ReadError(path, _NESTED) from None
    except MemoryError:
        raise ReadError(path, "takes more memory than there is; crop or divide it") from None
    except Exception as error:  # for damaged bytes, the decoders raise any
        raise ReadError(path, f"is damaged, or no image that is read: {_brief(error)}") from None


def _brief(error: Exception) -> str:
    """The first sentence: decoders add advice and raw bytes."""
    return (str(error) or type(error).__name__).partition(". ")[0].partition("\n")[0][:200]


def _decode(file: ImageFile | SeriesInMemory, axis: Axis, mask: bool) -> RawImage:
    if isinstance(file, SeriesInMemory):
        return DICOM.read(file, axis=axis, mask=mask)
    try:
        info = file.stat()
    except FileNotFoundError:
        raise MueError("does not exist") from None
    if stat.S_ISDIR(info.st_mode):
        return DICOM.read(file, axis=axis, mask=mask)
    if not stat.S_ISREG(info.st_mode):
        raise MueError("is not a file")
    if info.st_size > MAX_BYTES:
        raise MueError(f"has {info.st_size} bytes; at most {MAX_BYTES} are read")
    with open_bounded(file) as opened:
        form = format_of(file.name, opened.read(HEAD))
    if form is None:
        *names, last = (form.name for form in FORMATS)
        raise MueError(f"is not {', '.join(names)} or {last}; convert it")
    return form.read(file, axis=axis, mask=mask)


def modality(path: Path) -> str:
    """The modality that DICOM names, such as CT; "" for any other file."""
    from mue.data.images.dicom import read_modality

    try:
        return read_modality(path)
    except Exception:  # it is read again, and then refused with a reason
        return ""
