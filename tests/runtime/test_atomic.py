import os
import subprocess
import sys
from pathlib import Path

import pytest

from mue.errors import MueError
from mue.runtime.atomic import (
    UNFINISHED,
    check_folder,
    locked,
    new_folder,
    transaction,
    write_atomic,
)


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


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o077])
def test_permissions_are_those_that_the_umask_leaves(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_atomic(tmp_path / "file", b"")
        with new_folder(tmp_path / "folder") as made:
            (made / "file").touch()
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~mask
    assert (tmp_path / "folder" / "file").stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("fails", ["fsync", "replace"])
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


# --- several files --------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [ValueError, OSError, KeyboardInterrupt])
def test_files_of_a_transaction_that_fails_are_all_as_they_were(tmp_path, fails):
    write_atomic(tmp_path / "one", b"old")

    def fail() -> None:
        with transaction():
            write_atomic(tmp_path / "one", b"new")
            write_atomic(tmp_path / "two", b"new")
            raise fails("no")

    with pytest.raises(fails, match="no"):
        fail()
    assert files(tmp_path) == {"one": b"old"}


def test_files_of_a_transaction_appear_together_at_its_end(tmp_path):
    with transaction():
        write_atomic(tmp_path / "one", b"1")
        with transaction():  # a part of the outer one
            write_atomic(tmp_path / "two", b"first")
            write_atomic(tmp_path / "two", b"2")
        assert not (tmp_path / "one").exists()
        assert not (tmp_path / "two").exists()
    assert files(tmp_path) == {"one": b"1", "two": b"2"}


def test_a_full_disk_names_the_file_that_was_to_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        write_atomic(tmp_path / "file", b"new")
    assert error.value.filename == str(tmp_path / "file")


def test_neither_a_device_nor_a_folder_is_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "fifo", tmp_path / "folder"):
        with pytest.raises(MueError, match="must be a file or not exist yet"):
            write_atomic(path, b"new")
    assert (tmp_path / "fifo").is_fifo()


# --- folders for output ---------------------------------------------------------------------------


def test_a_folder_for_output_is_refused_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "file/below", "fifo", "link"):
        with pytest.raises(MueError, match=f"{name} must be a folder to write to"):
            check_folder(tmp_path / name)
    for path in (Path("/proc/new"), Path("/dev/null")):
        with pytest.raises(MueError, match=f"{path} must be a folder to write to"):
            check_folder(path)
    check_folder(tmp_path)
    check_folder(tmp_path / "new" / "below")
    assert not (tmp_path / "new").exists()


def test_a_link_to_a_folder_stays_and_the_folder_is_made(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with new_folder(tmp_path / "link") as folder:
        (folder / "a").write_bytes(b"1")
    assert (tmp_path / "link").is_symlink()
    assert files(tmp_path / "real") == {"a": b"1"}


def test_a_mount_point_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path / "out")
    with pytest.raises(MueError, match="is a mount point"), new_folder(tmp_path / "out"):
        raise AssertionError("the block must not run")


def test_one_process_holds_a_folder_and_its_death_frees_it(tmp_path):
    code = """if True:
        import sys, time
        from pathlib import Path
        from mue.runtime.atomic import locked
        with locked(Path(sys.argv[1])):
            print("held", flush=True)
            time.sleep(60)
        """
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(MueError, match="is being written to by another process"),
            locked(tmp_path / "run"),
        ):
            raise AssertionError("two hold it")
        other.kill()
    with locked(tmp_path / "run"):
        pass
    assert files(tmp_path / "run") == {}


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    """Wherever another process writes next: to the folder itself, or to one in it."""
    code = """if True:
        import sys, time
        from pathlib import Path
        from mue.runtime.atomic import new_folder, transaction, write_atomic
        root = Path(sys.argv[1])
        with transaction(), new_folder(root / "made") as made:
            (made / "file").touch()
            write_atomic(root / "file", b"1")
            write_atomic(root / "figures" / "file", b"1")
            print("begun", flush=True)
            time.sleep(60)
        """
    again = """if True:
        import sys
        from pathlib import Path
        from mue.runtime.atomic import check_folder, write_atomic
        root = Path(sys.argv[1])
        check_folder(root)
        write_atomic(root / "figures" / "other", b"2")
        """
    (tmp_path / ".mue-mine").mkdir()  # not a name that we give
    other = [sys.executable, "-c", again, str(tmp_path)]
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as living:
        assert living.stdout is not None
        assert living.stdout.readline() == "begun\n"
        before = files(tmp_path)
        assert len(before) == 3
        subprocess.run(other, check=True)
        assert files(tmp_path) == before | {"figures/other": b"2"}
        living.kill()
    subprocess.run(other, check=True)
    assert files(tmp_path) == {"figures/other": b"2"}
    assert {p.name for p in tmp_path.iterdir()} == {"figures", ".mue-mine"}


def test_a_folder_that_another_process_made_meanwhile_is_named(tmp_path):
    def write():
        with new_folder(tmp_path / "out") as made:
            (made / "a").write_text("1")
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "theirs").touch()

    with pytest.raises(OSError, match="not empty") as caught:
        write()
    assert (caught.value.filename, caught.value.filename2) == (str(tmp_path / "out"), None)
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "theirs"]


def test_a_transaction_that_fails_leaves_no_folders_that_it_made(tmp_path):
    def fail() -> None:
        with transaction():
            write_atomic(tmp_path / "deep" / "one", b"1")
            write_atomic(tmp_path / "deep" / "er" / "two", b"2")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_file_in_a_new_folder_by_where_it_was_to_be(tmp_path):
    def fill() -> None:
        with new_folder(tmp_path / "out") as folder:
            raise OSError(28, "No space left on device", str(folder / "deep" / "file"))

    with pytest.raises(OSError, match="No space left") as error:
        fill()
    assert error.value.filename == str(tmp_path / "out" / "deep" / "file")


def test_a_new_folder_that_cannot_be_made_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    long = "x" * 300
    for name, words in (
        ("loop", "loop must be empty or not exist yet, and it is a device or a broken link"),
        ("fifo", "fifo must be empty or not exist yet, and it is a device or a broken link"),
        ("file", "file must be empty or not exist yet, and it is a file"),
        ("a\udcff", "must be a folder to write to, with a name in UTF-8"),
        (long, "File name too long"),
    ):
        with pytest.raises(MueError, match=words), new_folder(tmp_path / name):
            raise AssertionError("the block must not run")
    with pytest.raises(MueError, match="must be a folder to write to: File name too long"):
        check_folder(tmp_path / long)
