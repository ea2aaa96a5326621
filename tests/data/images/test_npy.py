import numpy as np
import pytest

from mue.data.images.reader import decode_file, read_image_file

RANDOM = np.random.default_rng(0)


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = RANDOM.integers(0, 200, shape)
    return (values / 7 if dtype.startswith("f") else values * (300 if "16" in dtype else 1)).astype(
        dtype
    )


def test_booleans_are_0_and_255_in_an_image_and_0_and_1_in_a_mask(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[True, False]]))
    for mask, expected in ((False, [255, 0]), (True, [1, 0])):
        pixels = decode_file(tmp_path / "a.npy", mask=mask).pixels
        assert (pixels.dtype, pixels.flatten().tolist()) == (np.uint8, expected)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((5, 7), (1, 1, 5, 7)),
        ((3, 5, 7), (3, 1, 5, 7)),
        ((12, 5, 7), (12, 1, 5, 7)),
        ((5, 7, 3), (3, 1, 5, 7)),
        ((2, 6, 5, 7), (2, 6, 5, 7)),
    ],
)
def test_arrays_are_read_by_their_shape(tmp_path, shape, wanted):
    values = random(shape, "int16")
    np.save(tmp_path / "a.npy", values)
    found = read_image_file(tmp_path / "a.npy").pixels
    assert found.shape == wanted
    assert found[0, 0, 4, 5] == (
        values[4, 5, 0] if shape[-1] == 3 else values.reshape(wanted)[0, 0, 4, 5]
    )
