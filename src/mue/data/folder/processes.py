"""Results computed by several processes, in the order of the arguments.

Pillow decodes under the interpreter lock, so threads would wait for each other. Process k of n
takes the arguments k, k + n, … and writes what it yields to a pipe, which holds it back when it is
ahead, so that memory is bounded. A `concurrent.futures.ProcessPoolExecutor` would import the
caller's script and torch in each process, hold whole volumes, and outlive a caller that is killed:
those of `mue.data.worker` import only what they need, and end when their pipe is closed.
"""

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from mue.data.worker import end_worker, start_worker
from mue.runtime.environment import keep_freed_memory

_A = TypeVar("_A")
_B = TypeVar("_B")
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
_F_SETPIPE_SZ, _PIPE_BYTES = 1031, 1 << 20  # of Linux


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_processes(
    call: Callable[[_A], Iterable[_B]], arguments: Sequence[_A], count: int
) -> Generator[Iterator[_B]]:
    """For each argument what `call` yields, which must be taken before the next.

    `call` is a function of a module, or a `functools.partial` of one. With one process it is called
    in this one.

    Raises:
        ChildProcessError: A process ended before its time; the number is its exit status.
    """
    if count < 2:
        yield from (iter(call(argument)) for argument in arguments)
        return
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_worker()) for _ in range(count)]
        for k, worker in enumerate(workers):
            assert worker.stdin is not None
            with contextlib.suppress(BrokenPipeError), worker.stdin:
                pickle.dump((call, arguments[k::count]), worker.stdin)
        for i in range(len(arguments)):
            yield _received(workers[i % count])


def _received(worker: subprocess.Popen[bytes]) -> Iterator[Any]:
    """What a process yields for an argument."""
    assert worker.stdout is not None
    while True:
        try:
            more, found = pickle.load(worker.stdout)  # noqa: S301  from our own process
        except (EOFError, pickle.UnpicklingError):
            raise ChildProcessError(worker.wait(), "a process ended before its time") from None
        if not more:
            return
        yield found


@contextlib.contextmanager
def _worker() -> Generator[subprocess.Popen[bytes]]:
    worker = start_worker(__name__, environment=_ONE_THREAD)
    try:
        if sys.platform == "linux":
            import fcntl

            with contextlib.suppress(OSError):  # a system may allow less
                assert worker.stdout is not None
                fcntl.fcntl(worker.stdout.fileno(), _F_SETPIPE_SZ, _PIPE_BYTES)
        yield worker
    finally:
        end_worker(worker)


def work() -> None:
    """What a process does: read its arguments, call the function for each, write what it yields."""
    keep_freed_memory()  # the next image takes the pages of the last one
    try:
        call, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301
    except (EOFError, pickle.UnpicklingError):  # the caller was killed
        return
    out = sys.stdout.buffer
    with contextlib.suppress(BrokenPipeError):
        for argument in arguments:
            for found in call(argument):
                pickle.dump((True, found), out, protocol=5)
            pickle.dump((False, None), out)
            out.flush()
