import os
from pathlib import Path

import numpy as np
import pytest
import torch
from nibabel.nifti1 import Nifti1Image
from PIL import Image

from mue.config.schema import NormalizeConfig
from mue.data.images.image import Limits, limited
from mue.errors import MueError
from mue.inference.files import (
    SETTINGS,
    InputFile,
    find_inputs,
    read_input,
    require_different_names,
)
from mue.inference.inputs import network_input


def read_image(path: Path, channels: int) -> torch.Tensor:
    """An image file as a model takes it that divides by the maximum of a type."""
    raw = read_input(InputFile(path.stem, (path,)), channels)
    return network_input(raw.pixels, NormalizeConfig())[0]


# --- what is found --------------------------------------------------------------------------------


def save(path: Path, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 3), value).save(path)
    return path


def test_a_folder_gives_its_images_by_their_path_within_it(tmp_path):
    for name in ("b.png", "a/x.png", "a/y.tif", ".hidden/z.png"):
        save(tmp_path / name)
    (tmp_path / "README.md").write_text("no image")
    found = find_inputs([tmp_path, tmp_path / "b.png"], 1)
    assert [f.name for f in found] == ["b", "a/x", "a/y", "b"]
    assert found[1].paths == (tmp_path / "a" / "x.png",)
    with pytest.raises(ValueError, match=r"b\.png is called as .*b\.png is; give the folder above"):
        require_different_names(found)


def test_answers_within_a_folder_are_no_images(tmp_path):
    save(tmp_path / "one.png")
    save(tmp_path / "answers" / "one-1.png")
    (tmp_path / "answers" / SETTINGS).write_text("{}")
    assert [f.name for f in find_inputs([tmp_path], 1)] == ["one"]


def test_linked_folders_are_looked_into_as_an_import_does(tmp_path):
    save(tmp_path / "other" / "b.png")
    save(tmp_path / "own" / "a.png")
    (tmp_path / "own" / "linked").symlink_to(tmp_path / "other")
    assert [f.name for f in find_inputs([tmp_path / "own"], 1)] == ["a", "linked/b"]


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("none")
    with pytest.raises(ValueError, match="must hold image files or a DICOM series, and it holds"):
        find_inputs([tmp_path], 1)


def test_the_channels_of_a_case_are_joined(tmp_path):
    """As in nnU-Net; one whose second channel is missing stays a file, and is refused as such."""
    for i, name in enumerate(("a_0000", "a_0001", "b_0000")):
        save(tmp_path / f"{name}.png", i)
    a, b = find_inputs([tmp_path], 2)
    assert (a.name, b.name) == ("a", "b_0000")
    assert read_input(a, 2).pixels[:, 0, 0, 0].tolist() == [0, 1]
    with pytest.raises(ValueError, match="must have the 2 channels that this model takes, and"):
        read_input(b, 2)
    assert len(find_inputs([tmp_path], 1)) == 3


def test_numbered_photographs_are_images_by_themselves(tmp_path):
    """A camera numbers its files as nnU-Net numbers channels: none of them may be dropped."""
    for i in range(5):
        save(tmp_path / "grey" / f"IMG_{i:04d}.png", i)
        Image.new("RGB", (4, 3)).save(tmp_path / f"IMG_{i:04d}.jpg")
    names = [f"IMG_{i:04d}" for i in range(5)]
    found = [f.name for f in find_inputs([tmp_path], 3)]
    assert found == [*names, *(f"grey/{name}" for name in names)]
    for i in (3, 4):
        (tmp_path / f"IMG_{i:04d}.jpg").unlink()
    assert [f.name for f in find_inputs([tmp_path], 3)][:3] == names[:3]
    (tmp_path / "grey" / "IMG_0004.png").unlink()  # 0 to 3: one more than the model's channels
    assert [f.name for f in find_inputs([tmp_path / "grey"], 3)] == names[:4]


@pytest.mark.parametrize("numbers", [(0, 1), (1, 2), (0, 2)])
def test_a_case_that_lacks_a_channel_is_refused(tmp_path, numbers):
    """Each of the files alone would pass for a grey photograph, and be answered as such."""
    for i in range(3):
        save(tmp_path / f"a_{i:04d}.png", i)
    for i in numbers:
        save(tmp_path / f"b_{i:04d}.png", i)
    a, b = find_inputs([tmp_path], 3)
    assert read_input(a, 3).pixels[:, 0, 0, 0].tolist() == [0, 1, 2]
    has = ", ".join(f"{i:04d}" for i in numbers)
    words = f"each of the 3 channels that this model takes, 0000 to 0002, and b has {has}"
    with pytest.raises(MueError, match=words):
        read_input(b, 3)


def test_two_files_for_one_channel_are_refused(tmp_path):
    for name in ("a_0000.png", "a_0001.png", "a_0001.PNG", "a_0002.png"):
        save(tmp_path / name)
    (file,) = find_inputs([tmp_path], 3)
    with pytest.raises(MueError, match="and a has 0000, 0001, 0001, 0002"):
        read_input(file, 3)


def test_cases_of_one_name_in_two_folders_keep_their_channels(tmp_path):
    for i in range(4):
        save(tmp_path / str(i // 2) / f"a_000{i % 2}.png", i)
    found = find_inputs([tmp_path / "0", tmp_path / "1"], 2)
    assert [read_input(file, 2).pixels[:, 0, 0, 0].tolist() for file in found] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(("c", "channels"), [(1, 3), (3, 1)])
def test_the_channels_of_a_volume_are_no_colours(tmp_path, c, channels):
    image = Nifti1Image(np.zeros((4, 3, 2, c), np.int16), np.eye(4))
    (tmp_path / "a.nii").write_bytes(image.to_bytes())
    with pytest.raises(MueError, match=f"must have the {channels} channels .*, and it has {c}"):
        read_input(InputFile("a", (tmp_path / "a.nii",)), channels)


def test_the_folder_that_one_is_in_has_its_name(tmp_path, monkeypatch, ct_slice):
    """A series in `.` was answered as the hidden file `.nii.gz`."""
    (tmp_path / "scan" / "below").mkdir(parents=True)
    for k in range(2):
        data = ct_slice(np.zeros((4, 5)), 2.0 * k, "1.2")
        data.save_as(tmp_path / "scan" / f"{k}.dcm", enforce_file_format=True)
    monkeypatch.chdir(tmp_path / "scan" / "below")
    assert [file.name for file in find_inputs([".."], 1)] == ["scan"]
    monkeypatch.chdir(tmp_path / "scan")
    assert [file.name for file in find_inputs(["."], 1)] == ["scan"]


def test_channels_of_different_sizes_are_refused(tmp_path):
    save(tmp_path / "a_0000.png")
    Image.new("L", (5, 3)).save(tmp_path / "a_0001.png")
    with pytest.raises(
        ValueError, match=r"a_0001.png is 3 x 5 and .*a_0000.png .*must be the same"
    ):
        read_input(find_inputs([tmp_path], 2)[0], 2)


def test_channels_in_different_places_are_refused(tmp_path):
    for i in range(2):
        image = Nifti1Image(np.zeros((4, 3, 2), np.uint8), np.diag([1.0 + i, 1, 1, 1]))
        (tmp_path / f"a_000{i}.nii").write_bytes(image.to_bytes())
    words = r"a_0001.nii has an affine that puts it up to 4 mm away from .*a_0000.nii"
    with pytest.raises(ValueError, match=words):
        read_input(find_inputs([tmp_path], 2)[0], 2)


# --- what is read ---------------------------------------------------------------------------------


def test_grey_levels_are_read_as_shares(tmp_path):
    levels = np.arange(20, dtype=np.uint8).reshape(4, 5) * 13
    Image.fromarray(levels).save(tmp_path / "grey.png")
    torch.testing.assert_close(
        read_image(tmp_path / "grey.png", 1)[0], torch.from_numpy(levels) / 255
    )


def test_colours_become_grey_where_the_model_sees_one_channel(tmp_path):
    """By hand, as ITU-R 601 weighs them: 0.299 red, 0.587 green, 0.114 blue."""
    Image.new("RGB", (3, 2), (200, 100, 50)).save(tmp_path / "colour.png")
    grey = (0.299 * 200 + 0.587 * 100 + 0.114 * 50) / 255
    found = read_image(tmp_path / "colour.png", 1)
    assert found.shape == (1, 2, 3)
    torch.testing.assert_close(found, torch.full((1, 2, 3), grey), atol=1 / 255, rtol=0)
    colours = read_image(tmp_path / "colour.png", 3)
    expected = torch.tensor([200, 100, 50])[:, None, None].expand(3, 2, 3) / 255
    torch.testing.assert_close(colours, expected)


def test_grey_becomes_colours_where_the_model_sees_three(tmp_path):
    Image.new("L", (3, 2), 51).save(tmp_path / "grey.png")
    torch.testing.assert_close(read_image(tmp_path / "grey.png", 3), torch.full((3, 2, 3), 0.2))


def test_sixteen_bits_of_grey_are_read_as_shares(tmp_path):
    """As scanners save them: 13107 of 65535 is a fifth, not white."""
    Image.fromarray(np.full((2, 3), 13107, dtype=np.uint16)).save(tmp_path / "deep.png")
    found = read_image(tmp_path / "deep.png", 1)
    torch.testing.assert_close(found, torch.full((1, 2, 3), 0.2), atol=1 / 255, rtol=0)


def test_a_missing_image_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no image file .*/none\.png"):
        find_inputs([tmp_path / "none.png"], 1)


def _text(good: bytes) -> bytes:
    return b"this is no image" + good[:0]


def _cut(good: bytes) -> bytes:
    return good[: len(good) // 2]


def _broken(good: bytes) -> bytes:
    return good[:50] + bytes(b ^ 0x55 for b in good[50:])


def _header(_: bytes) -> bytes:
    return b"P5 1\xbe 16 255\n" + bytes(100)


@pytest.mark.parametrize("damage", [_text, _cut, _broken, _header, lambda _: b""])
def test_a_corrupt_image_is_named(tmp_path, damage):
    path = tmp_path / "bad.png"
    Image.effect_noise((32, 32), 50).save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        ValueError, match=r"/bad\.png must be an image file that can be read, and it is not: "
    ):
        read_image(path, 1)


def test_an_image_that_is_too_large_is_refused_before_it_is_decoded(tmp_path):
    for size, fits in (((10, 10), True), ((10, 11), False)):
        path = tmp_path / f"{size}.png"
        Image.new("L", size).save(path)
        with limited(Limits(pixels=100)):
            if fits:
                assert read_image(path, 1).shape == (1, 10, 10)
                continue
            path.write_bytes(path.read_bytes()[:45])  # decoding would fail
            with pytest.raises(ValueError, match="is 11 x 10 pixels; 1 to 100 are read; crop it"):
                read_image(path, 1)


@pytest.mark.parametrize("names", [[f"a_000{i}.png" for i in range(3)], ["a.dcm", "b.dcm"]])
def test_fifos_among_images_are_not_waited_for(tmp_path, names):
    for name in names:
        os.mkfifo(tmp_path / name)
    found = find_inputs([tmp_path], 3)
    assert {str(path) for file in found for path in file.paths} == {
        str(tmp_path / name) for name in names
    }
    with pytest.raises(MueError, match="is not a file"):
        read_input(found[0], 3)
