import numpy as np
import pytest

from mue.config.schema import NormalizeConfig
from mue.data.prepared.format import FOREGROUND, Meta, is_packed, item_type, lengths


def test_a_record_has_sizes_moments_of_each_channel_and_pixels():
    assert item_type(1).itemsize == 4 * (3 + 2 + FOREGROUND)
    assert item_type(3).itemsize == 4 * (3 + 6 + FOREGROUND)


@pytest.mark.parametrize(
    ("labels", "mask_bytes"),
    [((), [4, 3]), (("background", "a"), [4, 3]), (("background", "a", "b"), [30, 24])],
)
def test_masks_of_one_class_are_bits_in_whole_bytes_and_others_are_bytes(labels, mask_bytes):
    """By hand: two masks of 15 pixels in 2 bytes each, three of 8 pixels in 1 byte each."""
    meta = Meta(
        format="",
        images=2,
        dtype="int16",
        channels=2,
        labels=labels,
        normalize=NormalizeConfig(),
        left_out=0,
    )
    items = np.zeros(2, item_type(2))
    items["h"], items["w"], items["raters"] = [3, 4], [5, 2], [2, 3]
    values, found = lengths(meta, items)
    assert values.tolist() == [30, 16]
    assert found.tolist() == mask_bytes
    assert is_packed(labels) == (len(labels) < 3)
