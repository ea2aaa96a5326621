"""JPEG, GIF, BMP and WebP, as Pillow decodes them."""

import io
import warnings
from dataclasses import replace

import numpy as np
from PIL import Image

from mue.data.images.image import (
    MAX_PIXELS,
    Axis,
    ImageFile,
    RawImage,
    check_size,
    open_bounded,
)
from mue.data.images.picture import Picture, exif_orientation, picture_image
from mue.errors import MueError

_FORMATS = ("JPEG", "GIF", "BMP", "WEBP")
_MODES = ("1", "L", "P", "RGB", "RGBA", "LA", "I;16", "I;16B", "I", "F")
_MAX_SCANS = 16  # of a progressive JPEG of the largest size; a smaller one may have more


def read(file: ImageFile, *, axis: Axis, mask: bool) -> RawImage:
    """The picture in a file."""
    del axis
    with open_bounded(file) as opened:
        return picture_image(decode_picture(opened.read()), file, mask=mask)


def picture_channels(path: ImageFile) -> int | None:
    """1 for grey and 3 for colours, by the header of a picture alone; None for anything else."""
    if not path.is_file():  # a FIFO would be waited for
        return None
    try:
        with warnings.catch_warnings(), open_bounded(path) as opened:
            warnings.simplefilter("ignore")
            with Image.open(opened, formats=(*_FORMATS, "PNG", "TIFF")) as file:
                if file.mode == "P":
                    colours = np.array(file.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
                    return 1 if (colours == colours[:, :1]).all() else 3
                return {"RGB": 3, "RGBA": 3}.get(file.mode, 1)
    except Exception:  # a volume, or damaged: it is read again, and then refused with a reason
        return None


def decode_picture(data: bytes) -> Picture:
    """The pixels of a JPEG, GIF, BMP or WebP; an error is a clause that follows on the name."""
    with Image.open(io.BytesIO(data), formats=_FORMATS) as file:
        check_size((len(file.getbands()), file.height, file.width), np.uint8)
        if file.format not in ("JPEG", "MPO") and getattr(file, "n_frames", 1) > 1:
            raise MueError("is an animation; save its frames as pictures, each a case of its own")
        scans = data.count(b"\xff\xda") if file.format in ("JPEG", "MPO") else 1
        if scans * file.height * file.width > _MAX_SCANS * MAX_PIXELS:
            raise MueError(f"is a JPEG of {scans} scans, each of all pixels; save it again")
        lossless = b"VP8L" in (data[12:16], data[30:34])  # of WebP
        lossy = file.format in ("JPEG", "MPO", "WEBP") and not lossless
        return replace(opened_picture(file), lossy=lossy)


def opened_picture(image: Image.Image) -> Picture:
    """The pixels of an image of Pillow; an error is a clause that follows on the name."""
    if image.mode not in _MODES:
        raise MueError(f"has colours of the mode {image.mode}; save it in grey or RGB")
    pixels = np.asarray(image)
    palette = np.array(image.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
    return Picture(
        pixels.reshape(*pixels.shape[:2], -1),
        palette=palette if image.mode == "P" else None,
        alpha=image.mode in ("LA", "RGBA"),
        keyed="transparency" in image.info,
        orientation=exif_orientation(image.getexif()),
        bits=1 if image.mode == "1" else 8,
    )
