"""Decoded pictures as images and as masks."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image

from mue.data.images.image import ImageFile, RawImage, plain_values
from mue.errors import MueError

_ORIENTATION = 274  # the tag of EXIF
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


def picture_image(picture: Picture, file: ImageFile, *, mask: bool) -> RawImage:
    """A picture as the image, or with `mask` the mask, that its file holds."""
    pixels = picture.mask() if mask else picture.image()
    if mask and picture.lossy:  # what compression did to 0 and 255 is undone, nothing else
        if 0 < (high := int(pixels.max())) <= 191:
            raise MueError(
                f"is compressed with loss and has no value above {high}; of a mask so compressed "
                "only 0 and 255 can be told apart: save it as PNG or TIFF, from the original"
            )
        pixels = np.where(pixels < 64, 0, np.where(pixels > 191, 255, pixels)).astype(np.uint8)
    return RawImage(plain_values(np.ascontiguousarray(pixels))[:, None], None, (file,))


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
    return exif_orientation(block)


def exif_orientation(exif: Image.Exif) -> int:
    """The same of a block that was parsed."""
    return int(exif.get(_ORIENTATION, 1))
