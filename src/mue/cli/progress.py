"""Progress bars on stderr."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Show(Protocol):
    """Sets the bar of a job, which appears with the first call."""

    def __call__(self, name: str, done: int, total: int, note: str = "") -> None:
        """So many of so many, and a note behind the bar."""
        ...


@contextlib.contextmanager
def progress_bars(*, disable: bool = False) -> Iterator[Show]:
    """A bar for each job. Nothing is shown before there is progress, so an error stands alone."""
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    )
    tasks: dict[str, TaskID] = {}

    def show(name: str, done: int, total: int, note: str = "") -> None:
        if not disable:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total, note="")
            bars.start()
            bars.update(tasks[name], completed=done, note=note, total=total)

    try:
        yield show
    finally:
        if bars.live.is_started:
            bars.stop()
