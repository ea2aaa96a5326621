"""Prepared images as files."""

import shlex
import shutil

import numpy as np
import pytest

from mue.commands.export_folder import export_folder
from mue.data.prepared.open import open_prepared
from mue.errors import MueError


def test_the_command_that_is_returned_imports_the_same_images_again(lesions, mue, tmp_path):
    calls: list[tuple[str, int, int]] = []
    out = tmp_path / "some files"
    found = export_folder(lesions, out=out, progress=lambda *call: calls.append(call))
    assert found.folder == out
    assert set(found.files) == {path for path in out.rglob("*") if path.is_file()}
    assert {name for name, _, _ in calls} == {"cases"}
    assert calls[-1][1] == calls[-1][2] == len({done for _, done, _ in calls if done})
    program, *arguments = shlex.split(found.command)
    assert program == "mue"
    assert mue(*arguments).code == 0
    one, two = open_prepared(lesions), open_prepared(f"{out}-prepared", verify=True)
    assert len(two.rows) == 40
    for split in ("train", "val", "test"):
        assert np.array_equal(two.members(split), one.members(split))
    assert all(np.array_equal(one.image(i), two.image(i)) for i in range(40))


def test_changed_data_are_not_exported(lesions, tmp_path):
    copy = shutil.copytree(lesions, tmp_path / "copy")
    content = bytearray((copy / "masks.bin").read_bytes())
    content[0] ^= 1
    (copy / "masks.bin").write_bytes(content)
    with pytest.raises(MueError, match=r"masks\.bin is not what was imported"):
        export_folder(copy, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
