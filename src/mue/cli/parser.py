"""Arguments, parsed as the signature and the docstring of a function say."""

import contextlib
import dataclasses
import io
import os
import re
import typing
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.conf import Positional, arg

from mue.commands.models import Model
from mue.commands.paths import Paths
from mue.errors import MueError
from mue.inference.writers import Format

Parsed = TypeVar("Parsed")
_PARSED: dict[Any, Any] = {
    Model: str,
    str | Path: str,
    str | os.PathLike[str]: str,
    str | Path | None: str | None,
    Sequence[Model]: tuple[str, ...],
    Model | Sequence[Model]: tuple[str, ...],
    Paths: tuple[str, ...],
    Sequence[str]: tuple[str, ...],
    Sequence[int]: tuple[int, ...],
    Sequence[Format]: tuple[Format, ...],
}
"""How a type is parsed of which Python callers have a choice."""


def parse(prog: str, parser: Callable[[], Parsed]) -> Parsed:
    """Let tyro parse. What it says of a wrong argument, in a box of many lines, is one sentence."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parser()
    except SystemExit as stop:
        if not stop.code:
            raise
        lines = [line.strip("│╰╯ ") for line in said.getvalue().splitlines()[1:]]  # after the title
        rules = [i for i, line in enumerate(lines) if set(line) <= {"─", "-"}]
        first = 1 if rules[:1] == [0] else 0  # one below the title, in ASCII
        sentence = " ".join(lines[first : rules[first]])
        sentence = re.sub(r"^Error parsing config(\.\w+)*: ", "", sentence)
        if "Perhaps you meant:" in lines:
            name = lines[lines.index("Perhaps you meant:") + 1].split()[0]
            sentence += f"; did you mean {name}?"
        raise MueError(f"{sentence.rstrip('.')}; see `{prog} --help`") from None


def parse_call(verb: Callable[..., Any], arguments: list[str], prog: str) -> dict[str, Any]:
    """The arguments of a public function, parsed by its signature and docstring.

    Required parameters before `*` are positional, all others but `progress` are flags. A result
    that has a `report` can be printed as JSON: `--json`.
    """
    hints, parameters = typing.get_type_hints(verb), dict(signature(verb).parameters)
    parameters.pop("progress", None)
    fields: list[tuple[str, Any, Any]] = []
    for name, p in parameters.items():
        parsed, required = _PARSED.get(hint := hints[name], hint), p.default is p.empty
        if required and p.kind is p.POSITIONAL_OR_KEYWORD:
            parsed = Annotated[parsed, Positional, arg(metavar=name.upper().removesuffix("S"))]
        elif Path in typing.get_args(hint):
            parsed = Annotated[parsed, arg(metavar="PATH")]
        default = dataclasses.MISSING if required else p.default
        fields.append((name, parsed, dataclasses.field(default=default)))
    if hasattr(hints["return"], "report"):
        flag = Annotated[bool, arg(help="Print the report alone, as JSON.")]
        fields.append(("json", flag, dataclasses.field(default=False)))
    form = dataclasses.make_dataclass(
        verb.__name__, fields, kw_only=True, namespace={"__doc__": verb.__doc__}
    )
    return vars(parse(prog, lambda: tyro.cli(form, prog=prog, args=arguments)))
