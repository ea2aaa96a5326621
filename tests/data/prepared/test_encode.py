from typing import Any

import numpy as np
import pytest

from mue.data.prepared import encode as module
from mue.data.prepared.encode import Encoded, encode, foreground_pixels
from mue.data.prepared.format import FOREGROUND, MAX_CHANNELS, MAX_NAME, MAX_RATERS
from mue.data.prepared.item import Item, Rejected


def item(c: int = 1, h: int = 3, w: int = 5, r: int = 2, **more: Any) -> Item:
    """An image of zeros."""
    image, masks = np.zeros((c, h, w), np.uint8), np.zeros((r, h, w), np.uint8)
    names: dict[str, Any] = {"patient": "p", "case": "a", "source": "a.png"} | more
    return Item(image=image, masks=masks, **names)


@pytest.mark.parametrize(
    ("largest", "beyond", "words"),
    [
        (item(r=MAX_RATERS), item(r=MAX_RATERS + 1), "has 4097 masks of 3 x 5 pixels"),
        (item(c=MAX_CHANNELS), item(c=MAX_CHANNELS + 1), "of 3 x 5 pixels in 4097 channels"),
        (item(case="x" * MAX_NAME), item(case="x" * (MAX_NAME + 1)), "a name of 4097 characters"),
        (item(source="x" * MAX_NAME), item(source="x" * (MAX_NAME + 1)), "of 4097 characters"),
        (item(r=1), item(r=0), "has 0 masks"),
        (item(h=1), item(h=0), "masks of 0 x 5 pixels"),
    ],
    ids=["raters", "channels", "name", "source", "no rater", "no pixel"],
)
def test_what_is_too_large_is_rejected_and_what_is_as_large_as_that_is_not(largest, beyond, words):
    assert isinstance(encode(largest, ()), Encoded)
    found = encode(beyond, ())
    assert isinstance(found, Rejected)
    assert words in found.why


def test_the_number_of_a_pixel_fits_into_what_stores_it(monkeypatch):
    """An image has fewer than 2^31 pixels: their numbers are stored in 32 bits with a sign."""
    assert np.iinfo(np.int32).max + 1 == module.MAX_ITEM_PIXELS
    monkeypatch.setattr(module, "MAX_ITEM_PIXELS", 16)
    assert isinstance(encode(item(h=3, w=5), ()), Encoded)
    assert isinstance(encode(item(h=4, w=4), ()), Rejected)


def test_an_image_without_its_pixels_keeps_type_and_channels():
    found = encode(item(c=3, r=4), ())
    assert isinstance(found, Encoded)
    kept = found.without_pixels()
    assert (len(kept.image), kept.image.dtype, kept.image.nbytes) == (3, np.uint8, 0)
    assert kept.masks.nbytes == 0
    assert (kept.row, kept.record) == (found.row, found.record)


def test_the_listed_pixels_are_annotated_and_every_class_has_its_share():
    classes = np.zeros((2, 40, 40), np.uint8)
    classes[0, :30, :30] = 1
    classes[1, 5, 7:9] = 2
    found = foreground_pixels(classes)
    assert len(found) == 16 + 2
    assert set(found[16:]) == {5 * 40 + 7, 5 * 40 + 8}
    assert all((classes.reshape(2, -1)[:, pixel] > 0).any() for pixel in found)
    assert len(foreground_pixels(np.zeros((3, 4, 4), np.uint8))) == 0
    assert len(foreground_pixels(np.arange(256, dtype=np.uint8).reshape(1, 16, 16))) == FOREGROUND
