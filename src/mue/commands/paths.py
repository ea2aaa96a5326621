"""Paths that commands are given, one or several."""

from collections.abc import Sequence
from pathlib import Path

from mue.errors import MueError

Paths = str | Path | Sequence[str | Path]
"""One path, or several."""


def paths_of(given: Paths, name: str) -> list[Path]:
    """Paths of which the caller gave one or several."""
    listed = [given] if isinstance(given, (str, Path)) else list(given)
    for path in listed:
        if not isinstance(path, (str, Path)):
            raise MueError(f"`{name}` must be paths of files or folders, got {type(path).__name__}")
    return list(map(Path, listed))
