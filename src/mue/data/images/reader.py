"""Image files of any kind, by what they hold rather than by what they are called.

The readers of TIFF, NIfTI and DICOM are imported when they are first used: their libraries take a
third of a second.
"""

import stat
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Shaped
from numpy.lib import format as npy

from mue.data.images import png
from mue.data.images.image import (
    MAX_BYTES,
    Axis,
    Geometry,
    ImageFile,
    RawImage,
    SeriesInMemory,
    check_size,
    cut_slices,
    open_bounded,
    plain_values,
)
from mue.data.images.picture import Picture, decode_picture
from mue.errors import MueError, ReadError

_PICTURES = (b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF")
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_NIFTI, DICOM_ENDINGS = (".nii", ".nii.gz"), (".dcm", ".dicom", ".ima")
_OTHERS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".npy")
_NESTED = "is nested too deeply to be read"
ENDINGS = (*_OTHERS, *_NIFTI, *DICOM_ENDINGS)
"""How the names of image files end, in lower case. A folder may hold a DICOM series."""


def read_image_file(path: str | ImageFile, *, axis: Axis = 2) -> RawImage:
    """An image, a volume, or the DICOM series in a folder, with the values of its files.

    Pictures of fewer than 8 bits are scaled to 8.

    PNG, JPEG, GIF, BMP, WebP, TIFF, NIfTI, DICOM and npy (h w, c h w, h w c with c up to 4, or
    c d h w). `axis` is the one of (i, j, k) that a volume is cut into slices along; a single slice
    stays one. Pictures are turned as EXIF says.

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


def _decode(path: ImageFile | SeriesInMemory, axis: Axis, mask: bool) -> RawImage:
    if isinstance(path, SeriesInMemory):
        return _dicom(path, axis, mask)
    try:
        info = path.stat()
    except FileNotFoundError:
        raise MueError("does not exist") from None
    if stat.S_ISDIR(info.st_mode):
        return _dicom(path, axis, mask)
    if not stat.S_ISREG(info.st_mode):
        raise MueError("is not a file")
    if info.st_size > MAX_BYTES:
        raise MueError(f"has {info.st_size} bytes; at most {MAX_BYTES} are read")
    with open_bounded(path) as file:
        head = file.read(132)
        if head[128:] == b"DICM":  # before it, a scanner may write the header of a TIFF
            return _dicom(path, axis, mask)
        if head.startswith((png.SIGNATURE, *_PICTURES)):
            data = head + file.read()
            is_png = head.startswith(png.SIGNATURE)
            return _picture(png.decode_png(data) if is_png else decode_picture(data), path, mask)
    if head.startswith(_TIFF):
        from mue.data.images.tiff import read_tiff

        return _volume(read_tiff(path, mask=mask), None, (path,), axis, mask)
    if head.startswith(npy.MAGIC_PREFIX):
        return _volume(_read_npy(path), None, (path,), axis, mask)
    if path.name.lower().endswith(_NIFTI):
        from mue.data.images.nifti import read_nifti

        return _volume(*read_nifti(path), (path,), axis, mask)
    if path.name.lower().endswith(DICOM_ENDINGS):  # without a preamble
        return _dicom(path, axis, mask)
    raise MueError("is not PNG, JPEG, GIF, BMP, WebP, TIFF, NIfTI, DICOM or npy; convert it")


def _dicom(path: ImageFile | SeriesInMemory, axis: Axis, mask: bool) -> RawImage:
    from mue.data.images.dicom import read_dicom

    found = read_dicom(path)
    return replace(
        _volume(found.voxels, found.affine, found.files, axis, mask),
        bits=found.bits,
    )


def modality(path: Path) -> str:
    """The modality that DICOM names, such as CT; "" for any other file."""
    from mue.data.images.dicom import read_modality

    try:
        return read_modality(path)
    except Exception:  # it is read again, and then refused with a reason
        return ""


def _picture(picture: Picture, path: ImageFile, mask: bool) -> RawImage:
    pixels = picture.mask() if mask else picture.image()
    if mask and picture.lossy:  # what compression did to 0 and 255 is undone, nothing else
        if 0 < (high := int(pixels.max())) <= 191:
            raise MueError(
                f"is compressed with loss and has no value above {high}; of a mask so compressed "
                "only 0 and 255 can be told apart: save it as PNG or TIFF, from the original"
            )
        pixels = np.where(pixels < 64, 0, np.where(pixels > 191, 255, pixels)).astype(np.uint8)
    return RawImage(plain_values(np.ascontiguousarray(pixels))[:, None], None, (path,))


def _volume(
    voxels: Shaped[np.ndarray, "c k j i"],
    affine: np.ndarray | None,
    files: tuple[ImageFile, ...],
    axis: Axis,
    mask: bool,
) -> RawImage:
    if mask and len(voxels) > 1:
        if (voxels != voxels[:1]).any():
            raise MueError(f"has {len(voxels)} channels; a mask has one value for each pixel")
        voxels = voxels[:1]
    pixels, axis = cut_slices(plain_values(voxels), axis)
    k, j, i = voxels.shape[1:]
    geometry = None if affine is None else Geometry(affine, (i, j, k), axis)
    return RawImage(pixels, geometry, files)


def _read_npy(path: ImageFile) -> Shaped[np.ndarray, "c d h w"]:
    """An array of numbers; its header is checked before memory is taken, pickles are refused."""
    with open_bounded(path) as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        if dtype.hasobject:
            raise MueError("holds Python objects; save an array of numbers")
        if not 2 <= len(shape) <= 4:
            size = " x ".join(map(str, shape)) or "a number"
            raise MueError(f"is {size}; an image is h w, c h w, h w c or c d h w")
        last = len(shape) == 3 and shape[2] <= 4 < shape[0]  # channels last
        check_size(shape[:2] if last else shape, dtype)
        file.seek(0)
        array = npy.read_array(file, allow_pickle=False)
    if array.ndim == 4:
        return array
    array = array.transpose(2, 0, 1) if last else array
    return array.reshape(-1, 1, *array.shape[-2:])
