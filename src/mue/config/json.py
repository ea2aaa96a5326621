"""A configuration from JSON: every value is checked, and names of older run folders are known."""

import dataclasses
import difflib
import typing
from typing import Any, Literal

from mue.errors import MueError

_ALIAS = {"views": "augment", "average": "ema", "graph": "cuda_graph", "recompute": "checkpointing"}
"""Names that fields have in older run folders."""
_REMOVED = {"revive_every": 0, "revive_until": 0.5}
"""Fields of older run folders, each with the value that it had where it was not used."""


def from_dict(kind: type[Any], value: object, name: str) -> Any:
    """A configuration dataclass from plain dictionaries, lists and numbers, each checked."""
    if not isinstance(value, dict):
        raise MueError(f"{name} must be an object with the fields of {kind.__name__}")
    given = typing.cast("dict[str, object]", value)
    fields = {_ALIAS.get(k, k): v for k, v in given.items() if (k, v) not in _REMOVED.items()}
    hints = typing.get_type_hints(kind)
    if unknown := sorted(set(fields) - set(hints)):
        close = difflib.get_close_matches(unknown[0], hints, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise MueError(f"{name} has no field {unknown[0]!r}{hint}")
    return kind(**{k: _value(hints[k], v, f"{name}.{k}") for k, v in fields.items()})


def _value(hint: Any, value: object, name: str) -> object:
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast("type[Any]", hint), value, name)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if isinstance(value, bool) and "on" in args:  # as switches were written once
            return "on" if value else "off"
        if value not in args or type(value) not in {type(a) for a in args}:
            raise MueError(f"{name} must be one of {', '.join(map(str, args))}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise MueError(f"{name} must be a list, got {value!r}")
        items = typing.cast("list[object]", value)
        return tuple(_value(args[0], v, f"{name}[{i}]") for i, v in enumerate(items))
    if hint is float and type(value) is int and abs(value) < 2**63:
        return float(value)
    if type(value) is not hint:
        raise MueError(f"{name} must be a {hint.__name__}, got {value!r}")
    return value
