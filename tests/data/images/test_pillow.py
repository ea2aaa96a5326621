import numpy as np
import pytest
from PIL import Image

from mue.data.images.reader import decode_file
from mue.errors import MueError


def test_a_jpeg_mask_is_0_and_255_again(tmp_path):
    values = np.zeros((32, 32), np.uint8)
    values[8:20, 5:25] = 255
    Image.fromarray(values).save(tmp_path / "a.jpg", quality=90)
    assert np.array_equal(decode_file(tmp_path / "a.jpg", mask=True).pixels[0, 0], values)
    Image.fromarray(0 * values).save(tmp_path / "empty.jpg")
    assert not decode_file(tmp_path / "empty.jpg", mask=True).pixels.any()


@pytest.mark.parametrize("ending", ["jpg", "webp"])
def test_small_values_that_are_compressed_with_loss_are_refused(tmp_path, ending):
    """They would become 0, and the mask an empty one."""
    values = np.zeros((32, 32), np.uint8)
    values[8:20, 5:25], values[20:, 9:] = 1, 2
    Image.fromarray(values).save(tmp_path / f"a.{ending}", quality=95)
    with pytest.raises(MueError, match=r"has no value above [123]; of a mask .* as PNG or TIFF"):
        decode_file(tmp_path / f"a.{ending}", mask=True)


def test_a_lossless_webp_mask_keeps_its_values(tmp_path):
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    Image.fromarray(values).save(tmp_path / "a.webp", lossless=True)
    assert np.array_equal(decode_file(tmp_path / "a.webp", mask=True).pixels[0, 0], values)
