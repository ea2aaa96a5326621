import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mue.data.images.walk import dicom_files, files_in, find_images, walk
from mue.errors import ReadError


def save(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 3)).save(path)
    return path


def found(folder: Path) -> list[str]:
    return [p.relative_to(folder).as_posix() for p in find_images(folder, without="answers.json")]


@pytest.fixture
def write_series(ct_slice):
    """Write slices of a series, one for each name, a step of 2 mm apart."""

    def make(folder: Path, *names: str, uid: str = "1.2") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for k, name in enumerate(names):
            data = ct_slice(np.zeros((4, 5)), 2.0 * k, uid)
            data.save_as(folder / name, enforce_file_format=True)
        return folder

    return make


def test_files_come_before_the_folders_each_in_natural_order(tmp_path):
    for name in ("i10.png", "i9.png", "b10/x.png", "b9/x.png", "I1.PNG"):
        save(tmp_path / name)
    assert found(tmp_path) == ["I1.PNG", "i9.png", "i10.png", "b9/x.png", "b10/x.png"]


def test_hidden_files_and_what_others_put_beside_images_are_left_out(tmp_path):
    for name in ("a.png", ".b.png", ".c/d.png", "__MACOSX/e.png", "x__MACOSX/f.png", "g.h.png"):
        save(tmp_path / name)
    (tmp_path / "DICOMDIR").write_bytes(bytes(128) + b"DICM")
    assert found(tmp_path) == ["a.png", "g.h.png", "x__MACOSX/f.png"]
    assert [path.name for path in files_in(tmp_path)] == ["a.png", "g.h.png"]
    assert [(folders, files) for _, folders, files in walk(tmp_path)] == [
        (["x__MACOSX"], ["a.png", "g.h.png"]),
        ([], ["f.png"]),
    ]


def test_linked_files_and_folders_are_followed(tmp_path, write_series):
    save(tmp_path / "other" / "deep" / "a.png")
    write_series(tmp_path / "scan", "1", "2")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "z.png").symlink_to(tmp_path / "other" / "deep" / "a.png")
    (folder / "link").symlink_to(tmp_path / "other")
    (folder / "scan").symlink_to(tmp_path / "scan")
    assert found(folder) == ["z.png", "link/deep/a.png", "scan"]


@pytest.mark.parametrize("to", [".", "below"])
def test_a_folder_that_is_reached_twice_is_refused(tmp_path, to):
    save(tmp_path / "below" / "a.png")
    (tmp_path / "loop").symlink_to(tmp_path / to)
    with pytest.raises(ReadError, match=r"reached twice through links; remove a link") as refused:
        found(tmp_path)
    assert refused.value.path == str(tmp_path / "loop")


def test_a_folder_can_be_left_out_by_a_file_in_it(tmp_path):
    save(tmp_path / "answers" / "a.png")
    save(tmp_path / "b.png")
    (tmp_path / "answers.json").write_text("{}")  # of the folder itself
    assert found(tmp_path) == ["b.png", "answers/a.png"]
    (tmp_path / "answers" / "answers.json").write_text("{}")
    assert found(tmp_path) == ["b.png"]


def test_slices_of_a_series_are_one_image_by_name_or_content(tmp_path, write_series):
    write_series(tmp_path / "named", "a.dcm", "b.IMA")
    write_series(tmp_path / "unnamed", "IM10", "IM9")
    save(tmp_path / "unnamed" / "preview.png")
    (tmp_path / "unnamed" / "notes").write_text("no image")
    (tmp_path / "unnamed" / "DICOMDIR").write_bytes((tmp_path / "unnamed" / "IM9").read_bytes())
    assert found(tmp_path) == ["named", "unnamed", "unnamed/preview.png"]
    assert [path.name for path in dicom_files(tmp_path / "unnamed")] == ["IM9", "IM10"]


def test_slices_of_different_series_are_images_by_themselves(tmp_path, write_series):
    write_series(tmp_path, "b.dcm")
    write_series(tmp_path, "a.dcm", uid="1.3")
    assert found(tmp_path) == ["a.dcm", "b.dcm"]
    write_series(tmp_path, "c.dcm", uid="1.3")  # now two are of one: the reader says what is wrong
    assert found(tmp_path) == ["."]


def test_a_single_slice_is_an_image(tmp_path, write_series):
    assert found(write_series(tmp_path, "IM1")) == ["IM1"]


def test_damaged_files_are_no_series(tmp_path):
    for name in ("a.dcm", "b.dcm"):
        (tmp_path / name).write_bytes(b"rubbish")
    assert found(tmp_path) == ["a.dcm", "b.dcm"]


def test_the_content_of_a_table_is_not_looked_at(tmp_path):
    for name in ("a.csv", "a.txt", "a.md", "a.json", "a.dat"):
        (tmp_path / name).write_bytes(bytes(128) + b"DICM")
    assert found(tmp_path) == ["a.dat"]


def test_a_pipe_is_no_dicom_and_not_waited_for(tmp_path):
    for name in ("pipe", "a.dcm", "b.png"):
        os.mkfifo(tmp_path / name)
    assert found(tmp_path) == ["a.dcm", "b.png"]  # which their reader refuses
    assert files_in(tmp_path) == []
