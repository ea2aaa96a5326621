import inspect

import pytest

from mue.cli.commands import COMMANDS
from mue.cli.parser import parse_call


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "train"])
def test_a_command_has_the_parameters_of_its_function(mue, name):
    said = mue(*name.split(), "--help")
    assert said.code == 0
    verb = COMMANDS[name]
    for parameter in inspect.signature(verb).parameters.values():
        positional = (
            parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            and parameter.default is parameter.empty
        )
        flag = "--" + parameter.name.replace("_", "-")
        shown = parameter.name.upper().removesuffix("S") if positional else flag
        assert (shown in said.out) == (parameter.name != "progress")
    assert "--json" in said.out or name not in ("evaluate", "predict", "compare")


def painted(picture: str, *, size: int = 3, colour: str = "red", progress: object = None) -> None:
    """Paint.

    Args:
        picture: What is painted.
        size: Of the brush.
        colour: Of the paint.
        progress: Shown as a bar.
    """


def test_arguments_are_parsed_by_the_signature():
    found = parse_call(painted, ["sky", "--size", "7"], "mue paint")
    assert found == {"picture": "sky", "size": 7, "colour": "red"}
    with pytest.raises(ValueError, match=r"colur.*mean --colour.*; see `mue paint"):
        parse_call(painted, ["sky", "--colur", "blue"], "mue paint")
    with pytest.raises(ValueError, match="PICTURE"):
        parse_call(painted, [], "mue paint")
