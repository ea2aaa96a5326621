"""How far a command is: one job of several, by its name."""

import functools
from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the name of a job, the number of its items that are done, and of all."""


def progress_of(name: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    """The progress of one job."""
    return None if progress is None else functools.partial(progress, name)
