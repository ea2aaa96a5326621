import os
from pathlib import Path

import pytest

from mue.atomic import UNFINISHED, new_folder, write_atomic


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def full(*_):
    raise OSError(28, "No space left on device")


# --- a file ---------------------------------------------------------------------------------------


def test_what_is_written_replaces_what_was_there(tmp_path):
    path = tmp_path / "new" / "file"
    for content in (b"old", b"", b"newer"):
        write_atomic(path, content)
        assert files(tmp_path) == {"new/file": content}
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("fails", ["fsync", "chmod", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, fails):
    write_atomic(tmp_path / "file", b"old")
    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(tmp_path / "file", b"new")
    assert files(tmp_path) == {"file": b"old"}


def test_an_interrupt_just_after_the_write_is_what_it_is(tmp_path, monkeypatch):
    replace = os.replace

    def interrupted(source, target):
        replace(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "file", b"new")
    assert files(tmp_path) == {"file": b"new"}


# --- a folder -------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_appears_when_all_of_it_is_written(tmp_path, there):
    out = tmp_path / "out"
    if there:
        out.mkdir()
    with new_folder(out) as folder:
        (folder / "a").write_bytes(b"1")
        assert folder.name.startswith(UNFINISHED)
        assert folder.parent == tmp_path  # the same disk: a rename cannot fail half-way
        assert files(tmp_path) == {f"{folder.name}/a": b"1"}
        (folder / "b").write_bytes(b"2")
    assert files(tmp_path) == {"out/a": b"1", "out/b": b"2"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert out.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt])
def test_a_folder_that_fails_leaves_nothing(tmp_path, error):
    def fail() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "a").write_bytes(b"1")
            raise error("no")

    with pytest.raises(error, match="no"):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_disk_that_is_full_at_the_end_leaves_nothing(tmp_path, monkeypatch, fails):
    def fill() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "a").write_bytes(b"1")

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left"):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_fails_leaves_no_parents_that_were_not_there(tmp_path):
    def fail() -> None:
        with new_folder(tmp_path / "deep" / "er" / "out"):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_occupied_is_refused_and_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_bytes(b"1")
    (tmp_path / "file").write_bytes(b"2")
    for name in ("out", "file"):
        with (
            pytest.raises(ValueError, match=rf"{name} must be empty or not exist yet, and it"),
            new_folder(tmp_path / name),
        ):
            raise AssertionError("the block must not run")
    assert files(tmp_path) == {"out/mine": b"1", "file": b"2"}
