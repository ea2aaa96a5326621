"""Progress bars on stderr."""

import contextlib
from collections.abc import Callable, Iterator

from rich import progress
from rich.console import Console
from rich.table import Column

from mue.errors import printable


@contextlib.contextmanager
def progress_bars(*, disable: bool = False) -> Iterator[Callable[..., None]]:
    """A bar for each job, set by `show(name, done, total, note)`.

    Nothing is shown before there is progress, so an error stands alone.
    """
    bars = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=12, table_column=Column(no_wrap=True)),
        progress.MofNCompleteColumn(table_column=Column(no_wrap=True)),
        progress.TimeElapsedColumn(table_column=Column(no_wrap=True)),
        progress.TimeRemainingColumn(table_column=Column(no_wrap=True)),
        progress.TextColumn("{task.fields[note]}", markup=False, table_column=Column()),  # wraps
        console=Console(stderr=True),
    )
    tasks: dict[str, progress.TaskID] = {}

    def show(name: str, done: int, total: int, note: str = "") -> None:
        if not disable:
            if name not in tasks:
                tasks[name] = bars.add_task(printable(name), total=total, note="")
            bars.start()
            bars.update(tasks[name], completed=done, note=note, total=total)

    try:
        yield show
    finally:
        if bars.live.is_started:
            bars.stop()
