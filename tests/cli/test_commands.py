import importlib

import pytest

from mue.cli.commands import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_the_function_of_the_file_of_its_name(name):
    verb = COMMANDS[name]
    words = name.removeprefix("data ").split()
    assert verb.__name__ in ("_".join(words), f"{words[-1]}_folder")
    assert getattr(importlib.import_module(f"mue.commands.{verb.__name__}"), verb.__name__) is verb
    assert (verb.__doc__ or "").partition("\n")[0].endswith(".")  # listed by `mue --help`
