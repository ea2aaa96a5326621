import ast
import json
import subprocess
from pathlib import Path

import pytest

import mue
from mue.runs.folder import (
    CONFIG,
    STATE,
    WEIGHTS,
    RunError,
    check_run_folder,
    commit,
    load_config,
    origin,
    save_config,
)

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


# --- configuration --------------------------------------------------------------------------------


def test_a_configuration_comes_back_with_its_origin(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("MUE_COMMIT", "abc123")
    config = tiny("vq", lr=1 / 3)
    save_config(tmp_path, config, "1.2.3")
    assert load_config(tmp_path) == config
    assert origin(tmp_path) == {"version": "1.2.3", "commit": "abc123", "data": None}
    save_config(tmp_path, config, "1.2.3", data="f00d")
    assert origin(tmp_path)["data"] == "f00d"


def test_a_run_of_a_time_without_data_has_none(folder):
    """What was written before there were prepared slices."""
    content = json.loads((folder / "config.json").read_text())
    del content["data"]
    (folder / "config.json").write_text(json.dumps(content))
    assert origin(folder)["data"] is None
    assert load_config(folder).data.name == "toy"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "config.json must be JSON, and it is not"),
        (b'{"config": ', "config.json must be JSON, and it is not"),
        (b"config: vq", "config.json must be JSON, and it is not"),
        (b"\xff\xfe\x00", "config.json must be JSON, and it is not"),
        (b"[" * 100_000, "config.json must be JSON, and it is not"),
        (b"[]", "config.json must hold an object with `config`, got list"),
        (b"{}", "config.json: config must be an object with the fields of Config"),
        (
            b'{"config": {"modell": {}}}',
            r"config.json: config has no field 'modell'; did you mean 'model'\?",
        ),
        (
            b'{"config": {"train": {"lr": "NaN"}}}',
            "config.json: config.train.lr must be a float, got 'NaN'",
        ),
        (b'{"config": {"train": {"lr": NaN}}}', "train.lr must be positive, got nan"),
        (b" " * 2_000_000, "config.json must be at most 1048576 bytes, got 2000000"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_by_name(folder, content, words):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        load_config(folder)


def test_the_commit_of_a_users_own_repository_is_not_taken_for_ours(tmp_path, monkeypatch):
    """As where the package is installed into an environment inside of that repository."""
    installed = tmp_path / ".venv" / "mue" / "runs"
    installed.mkdir(parents=True)
    for command in ("init", "-c user.name=a -c user.email=b commit --allow-empty -m theirs"):
        subprocess.run(["git", "-C", tmp_path, *command.split()], check=True, capture_output=True)
    monkeypatch.delenv("MUE_COMMIT", raising=False)
    monkeypatch.setattr("mue.runs.folder.__file__", str(installed / "folder.py"))
    assert commit() is None
