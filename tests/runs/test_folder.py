import ast
from pathlib import Path

import pytest

import mue
from mue.runs.folder import CONFIG, STATE, WEIGHTS, RunError, check_run_folder, commit

SRC = Path(mue.__file__).parent


def test_the_commit_of_a_tree_without_its_history_is_given_by_the_environment(monkeypatch):
    monkeypatch.setenv("MUE_COMMIT", "0123456789ab")
    assert commit() == "0123456789ab"
    monkeypatch.setenv("MUE_COMMIT", "")
    assert commit() != ""


def test_a_run_that_has_no_checkpoint_yet_may_be_replaced(folder):
    with pytest.raises(RunError, match="must be empty or not exist yet, and it holds files"):
        check_run_folder(folder, resume=False)
    assert check_run_folder(folder, resume=True)
    for path in [p for p in folder.rglob("*") if p.is_file() and p.name != CONFIG]:
        path.unlink()
    for path in [p for p in folder.iterdir() if p.is_dir()]:
        for below in sorted(path.rglob("*"), reverse=True):
            below.rmdir()
        path.rmdir()
    assert not check_run_folder(folder, resume=False)
    assert not check_run_folder(folder / "new", resume=False)


def test_a_file_is_no_run_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="must be a folder to write a run to, and it is a file"):
        check_run_folder(tmp_path / "file", resume=False)


def test_nothing_else_names_the_files_of_a_run():
    """Who reads or writes them calls `runs`, or takes the names from there."""
    for path in SRC.rglob("*.py"):
        named = {
            n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)
        }
        if path != SRC / "runs" / "folder.py":
            assert not named & {CONFIG, WEIGHTS, STATE}, path
