"""Results computed by several processes, in the order of the arguments.

Pillow decodes under the interpreter lock, so threads would wait for each other. Process k of n
takes the arguments k, k + n, … and writes what it yields to a pipe, which holds it back when it is
ahead, so that memory is bounded. A `concurrent.futures.ProcessPoolExecutor` would import the
caller's script and torch in each process, hold whole volumes, and outlive a caller that is killed:
these processes import only the module that they need, and end when their pipe is closed. They are
in a group of their own, so that Ctrl-C reaches the caller alone.
"""

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

_A = TypeVar("_A")
_B = TypeVar("_B")
_CODE = """\
import sys, types
sys.modules["mue"] = types.ModuleType("mue")
sys.modules["mue"].__path__ = [sys.argv[1]]
from mue.data.folder.processes import work
work()
"""
_PACKAGE = str(Path(__file__).parents[2])
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
_KEEP_FREED_MEMORY = {  # of GNU's C library: the next image takes the pages of the last one
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
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
    worker = subprocess.Popen(  # noqa: S603  our own code
        [sys.executable, "-P", "-W", "ignore", "-c", _CODE, _PACKAGE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | _ONE_THREAD | _KEEP_FREED_MEMORY,
        process_group=0 if os.name == "posix" else None,
    )
    try:
        if sys.platform == "linux":
            import fcntl

            with contextlib.suppress(OSError):  # a system may allow less
                assert worker.stdout is not None
                fcntl.fcntl(worker.stdout.fileno(), _F_SETPIPE_SZ, _PIPE_BYTES)
        yield worker
    finally:
        worker.kill()
        for pipe in (worker.stdin, worker.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        worker.wait()


def work() -> None:
    """What a process does: read its arguments, call the function for each, write what it yields."""
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
