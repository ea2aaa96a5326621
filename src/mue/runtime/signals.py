"""Signals that end a command, and what is done about them instead."""

import contextlib
import signal
from collections.abc import Callable, Generator, Iterable
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A command was asked to stop and has saved its state."""


@contextlib.contextmanager
def handled(
    names: Iterable[str], handler: Callable[[int, FrameType | None], None]
) -> Generator[None]:
    """Call `handler` when one of the signals of these names comes meanwhile.

    One that is ignored, as SIGHUP is under nohup, stays so. Outside of the main thread nothing
    changes: signals are somebody else's there.
    """
    with contextlib.ExitStack() as restored:
        with contextlib.suppress(ValueError):  # not the main thread
            for name in names:
                number = getattr(signal, name, None)  # Windows has no SIGHUP
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    restored.callback(signal.signal, number, signal.signal(number, handler))
        yield


def interrupt(_: int, __: FrameType | None) -> None:
    """End what is at work as Ctrl-C does, so that it removes what is half-written."""
    raise KeyboardInterrupt
