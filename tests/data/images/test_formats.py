import os

import numpy as np
import pytest
from PIL import Image

from mue.data.images import formats
from mue.data.images.formats import FORMATS, Format, format_of, image_ending
from mue.data.images.image import volume_image
from mue.data.images.reader import read_image_file
from mue.data.images.walk import find_images

RANDOM = np.random.default_rng(0)


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = RANDOM.integers(0, 200, shape)
    return (values / 7 if dtype.startswith("f") else values * (300 if "16" in dtype else 1)).astype(
        dtype
    )


def test_a_picture_is_recognized_by_its_content(tmp_path):
    Image.new("RGB", (4, 3), (9, 8, 7)).save(tmp_path / "a.bmp")
    os.rename(tmp_path / "a.bmp", tmp_path / "a.png")
    assert read_image_file(tmp_path / "a.png").pixels[:, 0, 0, 0].tolist() == [9, 8, 7]


@pytest.mark.parametrize("preamble", [b"II*\0\x08\0\0\0", b"MM\0*", b"BM"])
def test_dicom_with_the_preamble_of_another_format_is_dicom(ct_slice, tmp_path, preamble):
    """Scanners of GE write the header of a TIFF before it."""
    path, voxels = tmp_path / "a.dcm", random((4, 5), "int16") % 4096
    ct_slice(voxels, 0.0, "1.2").save_as(path, enforce_file_format=True)
    content = path.read_bytes()
    path.write_bytes(preamble + content[len(preamble) :])
    assert np.array_equal(read_image_file(path).pixels[0, 0], voxels - 1024)


def test_every_format_has_a_reader_and_a_way_to_be_recognized():
    for form in FORMATS:
        assert form.beginnings or form.by_name
        assert form.endings
        assert all(ending == ending.lower() and ending[0] == "." for ending in form.endings)
        for beginning in form.beginnings:
            assert format_of("a", bytes(form.at) + beginning) is form
    every = [ending for form in FORMATS for ending in form.endings]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize(
    ("name", "found"),
    [("a.NII.gz", "NIfTI"), ("a.nii", "NIfTI"), ("a.IMA", "DICOM"), ("a.png", None), ("a", None)],
)
def test_a_name_is_enough_where_the_content_says_nothing(name, found):
    assert getattr(format_of(name, bytes(132)), "name", None) == found


@pytest.mark.parametrize(
    ("name", "ending"),
    [("a.PNG", ".PNG"), ("a.b.nii.gz", ".nii.gz"), ("a.nii", ".nii"), ("png", ""), ("a.txt", "")],
)
def test_the_ending_of_a_name_is_as_it_is_written(name, ending):
    assert image_ending(name) == ending


def test_a_new_format_is_a_function_and_a_line(tmp_path, monkeypatch):
    def read(file, *, axis, mask):
        h, w = file.read_bytes()[4:6]
        return volume_image(np.zeros((1, 1, h, w), np.uint8), None, (file,), axis, mask)

    monkeypatch.setattr(formats, "FORMATS", [*FORMATS, Format("own", read, (".own",), (b"OWN1",))])
    (tmp_path / "a.Own").write_bytes(b"OWN1\3\5")
    (found,) = find_images(tmp_path, without="")
    assert read_image_file(found).pixels.shape == (1, 1, 3, 5)
    assert image_ending("a.Own") == ".Own"
