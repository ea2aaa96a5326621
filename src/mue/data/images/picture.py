"""Pictures: PNG, JPEG, GIF, BMP and WebP, as images and as masks."""

import io
import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image

from mue.data.images.image import MAX_PIXELS, ImageFile, check_size, open_bounded
from mue.errors import MueError

FORMATS = ("JPEG", "GIF", "BMP", "WEBP")
"""What Pillow reads for us, apart from PNG."""
_ORIENTATION = 274  # the tag of EXIF and TIFF
_MAX_SCANS = 16  # of a progressive JPEG of the largest size; a smaller one may have more
Image.preinit()  # it is not safe to leave this to several threads


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded picture, before its samples are made the channels of an image or a mask."""

    pixels: Shaped[np.ndarray, "h w c"]
    palette: UInt8[np.ndarray, "n 3"] | None = None  # the colours that pixels are indices of
    alpha: bool = False  # whether the last channel is opacity
    keyed: bool = False  # whether one colour is transparent, or some of a palette
    orientation: int = 1  # of EXIF
    lossy: bool = False  # whether values near each other may have been one value
    bits: int = 8  # of a sample; fewer are scaled to 8 in an image, but not in a mask

    def image(self) -> Shaped[np.ndarray, "c h w"]:
        """Grey or colours, turned as EXIF says."""
        pixels = self.pixels
        if self.keyed or (self.alpha and (pixels[..., -1] != np.iinfo(pixels.dtype).max).any()):
            raise MueError("has transparent pixels; save it without transparency")
        if self.palette is not None:
            colours = self._colours(self.palette)
            pixels = colours[pixels[..., 0]]
        elif self.alpha:
            pixels = pixels[..., :-1]
        elif self.bits < 8:
            pixels = scale_to_bytes(pixels, self.bits)
        return self._upright(pixels)

    def mask(self) -> Shaped[np.ndarray, "1 h w"]:
        """One value for each pixel: of a palette with colours its indices, with greys the greys."""
        pixels = self.pixels[..., :-1] if self.alpha else self.pixels
        if self.palette is not None and (c := self._colours(self.palette)).shape[1] == 1:
            pixels = c[pixels[..., 0]]
        if pixels.shape[2] > 1 and (pixels != pixels[..., :1]).any():
            raise MueError("is in colour; a mask has one value for each pixel, its class")
        return self._upright(pixels[..., :1])

    def _colours(self, palette: UInt8[np.ndarray, "n 3"]) -> UInt8[np.ndarray, "m c"]:
        """The colours that are used, as greys where all of them are."""
        if (highest := int(self.pixels.max())) >= len(palette):
            raise MueError(f"is damaged: its palette has {len(palette)} colours, a pixel {highest}")
        colours = palette[: highest + 1]
        return colours[:, :1] if (colours == colours[:, :1]).all() else colours

    def _upright(self, pixels: Shaped[np.ndarray, "h w c"]) -> Shaped[np.ndarray, "c v u"]:
        return turn(pixels.transpose(2, 0, 1), self.orientation)


def scale_to_bytes(pixels: Shaped[np.ndarray, "*s"], bits: int) -> UInt8[np.ndarray, "*s"]:
    """Samples of 1 to 7 bits as 0 to 255, rounded: the highest is white."""
    return np.rint(pixels.astype(np.float32) * (255 / ((1 << bits) - 1))).astype(np.uint8)


def turn(pixels: Shaped[np.ndarray, "*c h w"], orientation: int) -> Shaped[np.ndarray, "*c v u"]:
    """Rows and columns as the orientation 1 to 8 of EXIF or TIFF says that they are shown."""
    if orientation == 1:
        return pixels
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(-1, -2)
    down = -1 if orientation in (3, 4, 7, 8) else 1
    right = -1 if orientation in (2, 3, 6, 7) else 1
    return pixels[..., ::down, ::right]


def orientation_of(exif: bytes) -> int:
    """The orientation that a block of EXIF names, 1 where it names none."""
    if not exif:
        return 1
    block = Image.Exif()
    block.load(exif)
    return int(block.get(_ORIENTATION, 1))


def picture_channels(path: ImageFile) -> int | None:
    """1 for grey and 3 for colours, by the header of a picture alone; None for anything else."""
    if not path.is_file():  # a FIFO would be waited for
        return None
    try:
        with warnings.catch_warnings(), open_bounded(path) as opened:
            warnings.simplefilter("ignore")
            with Image.open(opened, formats=(*FORMATS, "PNG", "TIFF")) as file:
                if file.mode == "P":
                    colours = np.array(file.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
                    return 1 if (colours == colours[:, :1]).all() else 3
                return {"RGB": 3, "RGBA": 3}.get(file.mode, 1)
    except Exception:  # a volume, or damaged: it is read again, and then refused with a reason
        return None


def decode_picture(data: bytes) -> Picture:
    """The pixels of a JPEG, GIF, BMP or WebP; an error is a clause that follows on the name."""
    with Image.open(io.BytesIO(data), formats=FORMATS) as file:
        check_size((len(file.getbands()), file.height, file.width), np.uint8)
        if file.format not in ("JPEG", "MPO") and getattr(file, "n_frames", 1) > 1:
            raise MueError("is an animation; save its frames as pictures, each a case of its own")
        scans = data.count(b"\xff\xda") if file.format in ("JPEG", "MPO") else 1
        if scans * file.height * file.width > _MAX_SCANS * MAX_PIXELS:
            raise MueError(f"is a JPEG of {scans} scans, each of all pixels; save it again")
        if file.mode not in ("1", "L", "P", "RGB", "RGBA", "LA"):
            raise MueError(f"has colours of the mode {file.mode}; save it in grey or RGB")
        pixels = np.asarray(file)
        palette = np.array(file.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
        return Picture(
            pixels.reshape(*pixels.shape[:2], -1),
            palette=palette if file.mode == "P" else None,
            alpha=file.mode in ("LA", "RGBA"),
            keyed="transparency" in file.info,
            orientation=int(file.getexif().get(_ORIENTATION, 1)),
            lossy=file.format in ("JPEG", "MPO", "WEBP")
            and b"VP8L" not in (data[12:16], data[30:34]),  # of WebP without loss
            bits=1 if file.mode == "1" else 8,
        )
