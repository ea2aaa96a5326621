import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from mue.data.images.picture import turn
from mue.data.images.pillow import decode_picture
from mue.data.images.png import decode_png
from mue.errors import MueError


def saved(image: Image.Image, kind: str, **options) -> bytes:
    image.save(buffer := io.BytesIO(), kind, **options)
    return buffer.getvalue()


def palette_image(colours: list[int], values: np.ndarray) -> Image.Image:
    image = Image.fromarray(values.astype(np.uint8)).convert("P")
    image.putdata(values.flatten().tolist())
    image.putpalette(colours)
    return image


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_turned_as_exif_says(orientation):
    image = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3) * 40)
    exif = Image.Exif()
    exif[274] = orientation
    data = saved(image, "PNG", exif=exif)
    with Image.open(io.BytesIO(data)) as file:
        upright = np.asarray(ImageOps.exif_transpose(file))
    assert np.array_equal(decode_png(data).image()[0], upright)
    assert np.array_equal(turn(np.asarray(image), orientation), upright)
    jpeg = decode_picture(saved(image, "JPEG", exif=exif))
    assert jpeg.image().shape[1:] == upright.shape


def test_the_indices_of_a_coloured_palette_are_the_mask_and_its_colours_the_image():
    values = np.array([[0, 1, 2], [2, 1, 0]])
    image = palette_image([0, 0, 0, 255, 0, 0, 0, 0, 9], values)
    for data in (saved(image, "GIF"), saved(image, "PNG")):
        found = decode_picture(data) if data[:3] == b"GIF" else decode_png(data)
        assert np.array_equal(found.mask()[0], values)
        assert np.array_equal(found.image()[0], np.array([0, 255, 0])[values])
        assert np.array_equal(found.image()[2], np.array([0, 0, 9])[values])


def test_a_palette_of_greys_is_read_as_greys():
    values = np.array([[0, 1], [1, 0]])
    found = decode_png(saved(palette_image([255, 255, 255, 0, 0, 0], values), "PNG"))
    assert np.array_equal(found.mask()[0], 255 * (1 - values))
    assert found.image().shape == (1, 2, 2)


def test_transparency_is_refused_unless_all_is_opaque():
    opaque = Image.new("RGBA", (3, 2), (1, 2, 3, 255))
    assert decode_png(saved(opaque, "PNG")).image()[:, 0, 0].tolist() == [1, 2, 3]
    grey = Image.new("LA", (3, 2), (7, 255))
    assert decode_png(saved(grey, "PNG")).image()[:, 0, 0].tolist() == [7]
    opaque.putpixel((1, 1), (0, 0, 0, 254))
    with pytest.raises(MueError, match="has transparent pixels; save it without"):
        decode_png(saved(opaque, "PNG")).image()


def test_a_mask_may_be_grey_as_rgb_and_not_in_colour():
    grey = Image.new("RGB", (3, 2), (255, 255, 255))
    assert decode_png(saved(grey, "PNG")).mask().tolist() == [[[255] * 3] * 2]
    with pytest.raises(MueError, match="is in colour; a mask has one value"):
        decode_png(saved(Image.new("RGB", (3, 2), (255, 0, 0)), "PNG")).mask()


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_an_animation_is_refused(kind):
    frames = [Image.new("L", (4, 4), v) for v in (0, 255)]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:])
    with pytest.raises(MueError, match="is an animation; save its frames"):
        decode_picture(data)


def test_a_jpeg_of_endless_scans_is_refused_before_they_are_decoded():
    values = np.random.default_rng(0).integers(0, 256, (1024, 1024), dtype=np.uint8)
    data = saved(Image.fromarray(values), "JPEG", progressive=True)
    assert decode_picture(data).pixels.shape == (1024, 1024, 1)
    last = data[data.rindex(b"\xff\xda") : -2]
    attack = data[:-2] + last[:200] * 1100 + data[-2:]
    with pytest.raises(MueError, match=r"is a JPEG of 110\d scans, each of all pixels; save it"):
        decode_picture(attack)


def test_cmyk_is_refused():
    with pytest.raises(MueError, match="mode CMYK; save it in grey or RGB"):
        decode_picture(saved(Image.new("CMYK", (4, 4)), "JPEG"))
