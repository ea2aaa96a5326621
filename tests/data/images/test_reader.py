import os
import struct
import tracemalloc
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import tifffile
from PIL import Image

from mue.data.images.reader import decode_file, read_image_file
from mue.errors import MueError

RANDOM = np.random.default_rng(0)


AFFINE = np.array([[-2.0, 0, 0, 5], [0, 3, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1]])


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = RANDOM.integers(0, 200, shape)
    return (values / 7 if dtype.startswith("f") else values * (300 if "16" in dtype else 1)).astype(
        dtype
    )


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_grey_pictures_keep_their_bits(tmp_path, dtype):
    values = random((5, 7), dtype)
    Image.fromarray(values).save(tmp_path / "a.png")
    found = read_image_file(tmp_path / "a.png")
    assert (found.pixels.dtype, found.geometry) == (np.dtype(dtype), None)
    assert np.array_equal(found.pixels[0, 0], values)


@pytest.mark.parametrize("options", [{}, {"compression": "group4"}])
@pytest.mark.parametrize("form", ["bmp", "tif"])
def test_pictures_of_one_bit_are_black_and_white_and_masks_of_0_and_1(tmp_path, form, options):
    values = random((5, 7), "uint8") % 2
    options = options if form == "tif" else {}
    Image.fromarray(values * 255).convert("1").save(tmp_path / f"a.{form}", **options)
    assert np.array_equal(read_image_file(tmp_path / f"a.{form}").pixels[0, 0], values * 255)
    mask = decode_file(tmp_path / f"a.{form}", mask=True).pixels[0, 0]
    assert np.array_equal(mask, mask.max() * values)


def _spoil(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "text.png":
        path.write_text("hello")
    elif kind == "empty":
        path.mkdir()
    elif kind == "pickle.npy":
        np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    elif kind == "huge.npy":
        np.save(path, np.zeros((2, 2), np.uint8))
        path.write_bytes(path.read_bytes().replace(b"(2, 2)", b"(9000000, 9000000)"))
    elif kind == "huge.nii":
        image = nib.Nifti1Image(np.zeros((2, 2, 2), np.uint8), AFFINE)
        image.header["dim"][1:4] = 30000
        path.write_bytes(bytes(image.header.binaryblock) + b"\0" * 100)
    elif kind == "nan.npy":
        np.save(path, np.array([[1.0, np.nan]]))
    elif kind == "five.npy":
        np.save(path, np.zeros((1, 1, 1, 2, 2)))
    elif kind == "complex.npy":
        np.save(path, np.zeros((2, 2), complex))
    elif kind == "long.npy":
        np.save(path, np.full((2, 2), 1 << 40))
    elif kind == "damaged.tif":
        tifffile.imwrite(path, np.zeros((20, 20), np.uint8))
        path.write_bytes(path.read_bytes()[:-50])
    elif kind == "circle.tif":
        tifffile.imwrite(path, np.zeros((2, 20, 20), np.uint8), photometric="minisblack")
        _link_last_page_to_first(path)
    return path


def _link_last_page_to_first(path: Path) -> None:
    data = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<I", data, 4)
    at, link = first, 0
    while at:
        link = _link(data, at)
        (at,) = struct.unpack_from("<I", data, link)
    struct.pack_into("<I", data, link, first)
    path.write_bytes(data)


def _link(data: bytearray, page: int) -> int:
    """Where a page names the next one, after its tags of twelve bytes."""
    (tags,) = struct.unpack_from("<H", data, page)
    return page + 2 + 12 * tags


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nowhere", "does not exist"),
        ("fifo", "is not a file"),
        ("text.png", "is not PNG, JPEG, .* or npy; convert it"),
        ("empty", "holds no DICOM files"),
        ("pickle.npy", "holds Python objects"),
        ("huge.npy", "is 9000000 x 9000000 pixels"),
        ("huge.nii", "is 30000 x 30000 pixels"),
        ("nan.npy", "infinite or not a number"),
        ("five.npy", "is 1 x 1 x 1 x 2 x 2; an image is h w"),
        ("complex.npy", "type complex128"),
        ("long.npy", "at most 32 bits"),
        ("damaged.tif", "damaged"),
        ("circle.tif", "has pages in a circle"),
    ],
)
def test_a_bad_file_is_one_sentence_that_begins_with_its_path(tmp_path, kind, words):
    path = _spoil(tmp_path, kind)
    with pytest.raises(MueError, match=words) as caught:
        read_image_file(path)
    assert str(caught.value).startswith(f"{path} ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("form", ["AVIF", "SPIDER", "JPEG2000"])
def test_formats_whose_decoders_fall_are_not_opened(tmp_path, form):
    """Pillow knows them, and raises any error of a damaged file."""
    values = np.zeros((64, 64), np.float32 if form == "SPIDER" else np.uint8)
    Image.fromarray(values).save(tmp_path / "whole", form)
    whole = (tmp_path / "whole").read_bytes()
    for data in (whole, whole[: len(whole) // 2], whole[:40] + b"\xff" * 40 + whole[80:]):
        for name in (f"a.{form.lower()}", "a.png"):
            (tmp_path / name).write_bytes(data)
            with pytest.raises(MueError, match=r"is not PNG, JPEG, .* or npy"):
                read_image_file(tmp_path / name)


@pytest.mark.parametrize("ending", ["dcm", "npy"])
def test_a_damaged_length_takes_no_memory(ct_slice, tmp_path, ending):
    """Of a file of a kilobyte, 4 GiB are asked for."""
    path = tmp_path / f"a.{ending}"
    if ending == "npy":  # a header of the second version has a length of four bytes
        np.save(path, np.zeros((6, 5), np.uint8))
        whole, length = path.read_bytes(), b"\1\0v\0"
        path.write_bytes(whole.replace(length, b"\2\0v\0\xff\xff"))
    else:
        data = ct_slice(np.arange(30).reshape(6, 5), 0.0, "1.2")
        data.add_new(0x00091010, "UN", b"long")
        data.save_as(path, enforce_file_format=True)
        whole, length = path.read_bytes(), b"UN\0\0\4\0\0\0long"
        path.write_bytes(whole.replace(length, b"UN\0\0\xf0\xff\xff\xfflong"))
    assert whole.count(length) == 1
    tracemalloc.start()
    with pytest.raises(MueError):
        read_image_file(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 << 20


def test_memory_that_is_not_there_is_not_called_damage(tmp_path, monkeypatch):
    def full(_):
        raise MemoryError

    np.save(tmp_path / "a.npy", np.zeros((2, 2)))
    monkeypatch.setattr("mue.data.images.npy.read_npy", full)
    with pytest.raises(MueError, match="takes more memory than there is; crop or divide it"):
        read_image_file(tmp_path / "a.npy")
