"""The command line: every command is the public function of its name, parsed, called, printed."""

import contextlib
import dataclasses
import functools
import json
import logging
import sys
import warnings
from collections.abc import Callable
from inspect import signature
from typing import Any

import tyro

from mue.cli import tables
from mue.cli.commands import COMMANDS
from mue.cli.exits import exit_codes
from mue.cli.parser import parse, parse_call
from mue.cli.progress import progress_bars
from mue.cli.stdout import StandardOutput
from mue.cli.train import train_command
from mue.commands.serve import serve
from mue.runtime.collectives import env_int
from mue.runtime.signals import handled, interrupt
from mue.version import __version__


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    What a user can correct is one sentence on stderr and exit code 2; any other exception is a
    defect and keeps its traceback. With --debug both do.
    """
    called, arguments = arguments is None, sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    if called and not debug:  # what libraries say meanwhile is for developers
        warnings.simplefilter("ignore")
        logging.getLogger().addHandler(logging.NullHandler())
        handled_apart = logging.getLogger("nibabel.global")  # it has a handler of its own
        handled_apart.setLevel(logging.CRITICAL)
    arguments = [a for a in arguments if a != "--debug"]
    with exit_codes(debug=debug), contextlib.redirect_stdout(StandardOutput(sys.stdout)) as output:
        try:
            _run(arguments)
        finally:
            output.flush()


def _run(arguments: list[str]) -> None:
    """Run the command that the first words name; without one, list the commands."""
    if arguments == ["--version"]:
        print(f"mue {__version__}")
        return
    for name, verb in COMMANDS.items():
        words = name.split()
        if arguments[: len(words)] == words:
            command = train_command if name == "train" else functools.partial(_call, verb)
            command(arguments[len(words) :], f"mue {name}")
            return
    group = "data " if arguments[:1] == ["data"] else ""
    listed = {
        name.removeprefix(group): dataclasses.make_dataclass(
            "command", [], namespace={"__doc__": (verb.__doc__ or "").partition("\n\n")[0]}
        )
        for name, verb in COMMANDS.items()
        if name.startswith(group)
    }
    prog = f"mue {group}".strip()
    parse(
        prog,
        lambda: tyro.extras.subcommand_cli_from_dict(
            listed,
            prog=prog,
            description="Ranked answers with probabilities, for problems with more than one. "
            "--version prints the version, --debug shows the traceback of an error.",
            args=(arguments[1:] if group else arguments) if arguments else ["--help"],
        ),
    )


def _call(verb: Callable[..., Any], arguments: list[str], prog: str) -> None:
    """Call a public function with parsed arguments and progress bars, and print its result."""
    values = parse_call(verb, arguments, prog)
    as_json = values.pop("json", False)
    ending = () if verb is serve else ("SIGTERM", "SIGHUP")  # a server ends by itself
    with (
        handled(ending, interrupt),
        progress_bars(disable=as_json or env_int("RANK", 0) != 0) as show,
    ):
        bars = {"progress": show} if "progress" in signature(verb).parameters else {}
        result = verb(**values, **bars)
    if as_json:
        print(json.dumps(result.report, indent=2))
    else:
        tables.print_result(result)
