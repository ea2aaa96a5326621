import shutil
from pathlib import Path

import pytest
from PIL import Image

import mue.data
from mue.data.prepared.open import open_prepared
from mue.data.prepared.write import write_prepared
from mue.errors import MueError


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def image_size(path: Path) -> tuple[int, int]:
    """The size of a image file that is valid, and not blank."""
    with Image.open(path) as file:
        assert len(file.convert("L").getcolors() or range(256)) > 10
        return file.size


def test_what_is_inside_is_counted_and_shown(lesions, tmp_path):
    result = mue.data.inspect(lesions, tmp_path / "sheet.png", verify=True)
    found = result.summary
    assert (found.patients, found.cases, found.slices) == (10, 20, 40)
    assert found.splits == {"train": (4, 16), "val": (3, 12), "test": (3, 12)}
    assert (found.sizes, found.spacing, found.form) == (((16, 16),), None, "made up")
    prepared = open_prepared(lesions)
    annotated = [int(prepared.masks_of(i).any(axis=(1, 2)).sum()) for i in range(40)]
    assert found.annotated == tuple(annotated.count(n) for n in range(5))
    assert found.digest == prepared.digest
    assert result.files == (tmp_path / "sheet.png",)
    image_size(result.files[0])


def test_the_sheet_goes_to_the_folder_of_runs_by_default(lesions, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = files(lesions)
    found = mue.data.inspect(lesions)
    assert found.files == (Path("runs/prepared-sheet.png"),)
    assert files(lesions) == before


def test_spacing_is_a_range_where_it_is_known(lesion, tmp_path):
    items = [lesion("p", 1, k) for k in range(3)]
    for item, spacing in zip(items, ((0.7, 0.6), None, (0.5, 0.6)), strict=True):
        object.__setattr__(item, "spacing", spacing)
    write_prepared(items, tmp_path / "out", {})
    found = mue.data.inspect(tmp_path / "out", tmp_path / "sheet.png").summary
    assert (found.spacing, found.form) == ((0.5, 0.7), "unknown")
    assert found.slices == 3


def test_an_inspection_that_verifies_finds_what_was_altered(lesions, tmp_path):
    copy = Path(shutil.copytree(lesions, tmp_path / "copy"))
    content = bytearray((copy / "masks.bin").read_bytes())
    content[-1] ^= 1
    (copy / "masks.bin").write_bytes(content)
    mue.data.inspect(copy, tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"masks.bin is not what was imported; import it again"):
        mue.data.inspect(copy, tmp_path / "b.png", verify=True)
    assert not (tmp_path / "b.png").exists()


def test_a_sheet_replaces_no_file_but_another_sheet(lesions, tmp_path):
    thesis = tmp_path / "thesis.png"
    thesis.write_text("not a picture")
    for out, words in ((thesis, "is there and no PNG"), ("/dev/null", "a file that ends in .png")):
        with pytest.raises(MueError, match=words):
            mue.data.inspect(lesions, out)
    assert thesis.read_text() == "not a picture"
    for _ in range(2):
        mue.data.inspect(lesions, tmp_path / "sheet.png")
