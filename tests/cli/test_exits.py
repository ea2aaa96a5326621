import errno
import functools
import signal

import pytest
import torch

from mue.cli import main as cli
from mue.cli.commands import COMMANDS
from mue.cli.exits import exit_codes, said_once
from mue.commands.figure import figure
from mue.errors import MueError
from mue.runs.log import NonFiniteError
from mue.runtime.signals import Interrupted


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: tried 9 bytes"),
        RuntimeError("unable to mmap 28856 bytes from file <a>: Cannot allocate memory (12)"),
        RuntimeError("could not create a primitive"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_memory_that_runs_out_is_one_sentence_of_every_command(mue, monkeypatch, command, error):
    def run(*_):
        raise error

    monkeypatch.setattr(cli, "train_command" if command == "train" else "_call", run)
    said = mue(*command.split())
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "memory ran out: name smaller inputs or fewer of them" in said.err


def test_other_errors_of_the_runtime_keep_their_traceback(mue, monkeypatch):
    def run(*_):
        raise RuntimeError("an illegal memory access")

    monkeypatch.setattr(cli, "_call", run)
    with pytest.raises(RuntimeError, match="illegal"):
        mue("demo")


@pytest.mark.parametrize("arguments", ["--debug evaluate nowhere", "evaluate nowhere --debug"])
def test_with_debug_a_traceback_comes_before_the_sentence(mue, arguments):
    said = mue(*arguments.split())
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("Traceback (most recent call last):")
    assert said.err.splitlines()[-1].startswith("mue: there is no bundled model")


@pytest.mark.parametrize("error", [ValueError("too many values"), OSError("no number"), KeyError()])
def test_a_defect_is_not_made_a_sentence(mue, monkeypatch, error):
    """What no user can correct keeps its traceback, with which Python exits with 1."""

    @functools.wraps(figure)
    def broken(*_, **__):
        raise error

    monkeypatch.setitem(COMMANDS, "figure", broken)
    with pytest.raises(type(error)):
        mue("figure", "guess")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_by_a_signal_leaves_nothing(mue, tmp_path, monkeypatch, number):
    def ended(*_):
        assert list(tmp_path.iterdir()) != []
        signal.raise_signal(number)

    def died(*_):
        raise AssertionError("it would have died, and its files been left")

    monkeypatch.setattr("mue.commands.new._save", ended)
    before = signal.signal(number, died)
    try:
        said = mue("data", "new", "out", "--cases", 20)
        assert signal.getsignal(number) is died
    finally:
        signal.signal(number, before)
    assert (said.code, said.err) == (130, "mue: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (Interrupted("stopped at step 3"), 130, "stopped at step 3; continue with --resume"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (NonFiniteError("the loss is nan"), 1, "the loss is nan"),
        (MueError("`k` must be 1"), 2, "`k` must be 1"),
        (FileNotFoundError(2, "No such file", "a.png"), 2, "a.png: No such file"),
        (OSError(13, "Permission denied"), 2, "a file: Permission denied"),
    ],
)
def test_every_kind_of_end_has_its_code_and_sentence(capsys, error, code, words):
    with pytest.raises(SystemExit) as end, exit_codes(debug=False):
        raise error
    assert end.value.code == code
    assert capsys.readouterr().err == f"mue: {words}\n"


def test_of_several_processes_the_first_says_what_all_know(capsys, monkeypatch):
    monkeypatch.setattr("mue.cli.exits._PATIENCE", 0.0)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(SystemExit) as end, exit_codes(debug=False):
        raise NonFiniteError("the loss is nan")
    assert (end.value.code, capsys.readouterr().err) == (1, "")
    with pytest.raises(SystemExit) as end, said_once():
        raise MueError("a wrong argument")
    assert (end.value.code, capsys.readouterr().err) == (2, "")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(MueError), said_once():
        raise MueError("a wrong argument")


@pytest.mark.parametrize("command", ["train toy --bogus", "train toi --out x", "train"])
def test_one_process_of_a_machine_says_what_is_wrong_with_a_command(mue, monkeypatch, command):
    monkeypatch.setattr("mue.cli.exits._PATIENCE", 0.0)
    said = mue(*command.split())
    assert said.code == 2
    assert said.err
    for name, value in {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    quiet = mue(*command.split())
    assert (quiet.code, quiet.out, quiet.err) == (2, "", "")
