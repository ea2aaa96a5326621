"""Damaged and hostile inputs of every kind, by seed: `make fuzz`.

An input depends on its kind and number alone, so that a finding can be repeated:
`make fuzz ARGS="--again 'image 123'"`. It is read as it was written, or refused by a MueError;
anything else is a finding. Processes of their own read the inputs, some hundred each, so that one
that crashes or hangs is a finding, too; they are forked from one that has imported everything. The
counts are kept in a file, from which the next call goes on.
"""

import argparse
import functools
import gc
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import reliability

from mue.errors import MueError
from mue.runtime.atomic import UNFINISHED, write_atomic

SECONDS = 10.0
"""Of the clock on a quiet machine, see `quiet_clock`."""
MEMORY = 2 << 30
OUTCOMES = ("read", "changed", "refused")
_CHUNK = 400  # inputs of a process
_WAIT = 120.0  # seconds of the clock after which a process hangs in a call that no signal ends


os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "inductor"))


class _TooLate(BaseException):
    """Not an Exception: whoever expects any of a decoder must not swallow it."""


def attempt(kind: str, number: int) -> str:
    """One of OUTCOMES, or what is wrong."""
    from inputs import KINDS

    def late(_: int, __: FrameType | None) -> None:
        if (left := began + SECONDS - quiet_clock()) <= 0:
            raise _TooLate(f"took more than {SECONDS:g} seconds")
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.01))  # others had the core meanwhile

    def finding(error: BaseException) -> str:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return f"{kind} {number}: {type(error).__name__}: {str(error)[:300]!r} ({where})"

    usual = tempfile.tempdir
    before = signal.signal(signal.SIGALRM, late)
    _forget_peak()
    start = _peak()
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given, out, temporary = (Path(name) / part for part in ("given", "out", "temporary"))
        for folder in (given, out, temporary):
            folder.mkdir()
        tempfile.tempdir = str(temporary)
        began = quiet_clock()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            outcome = KINDS[kind](random.Random(f"{kind} {number}"), given, out)
        except MueError as error:
            outcome = finding(error) if _hidden(error) else "refused"
        except (Exception, _TooLate) as error:
            outcome = finding(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            tempfile.tempdir = usual
        took = quiet_clock() - began
        left = [*temporary.iterdir(), *out.rglob(f"{UNFINISHED}*")]
        left += [*out.iterdir()] if outcome == "refused" else []
        if left:
            return f"{kind} {number}: left {left[0].name} behind"
    if outcome in OUTCOMES and took > SECONDS:  # in a call that no signal ended
        return f"{kind} {number}: took {took:.0f} seconds"
    if (taken := _peak() - start) > MEMORY:
        return f"{kind} {number}: took {taken >> 20} MiB"
    return outcome


def _hidden(error: BaseException) -> bool:
    """Whether a sentence stands for memory that ran out, or for a check of ours that failed."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__  # pyright: ignore[reportAssignmentType]
    return any(isinstance(e, MemoryError | AssertionError) for e in chain)


def quiet_clock(process: int | str = "self") -> float:
    """Seconds of the clock, less those in which a process could run and others had its core.

    A computation, a disk and a lock count as the clock shows them; only the wait for a processor,
    which Linux counts for each thread, would not be there on a quiet machine. Of a process with
    several threads it is that of the first.
    """
    waited = int(Path(f"/proc/{process}/schedstat").read_text().split()[1])
    return time.monotonic() - waited / 1e9


def _peak() -> int:
    """Bytes of memory that this process had at most since `_forget_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


# --- many -----------------------------------------------------------------------------------------


def warm_up(kinds: Sequence[str]) -> None:
    """Import and make what is loaded once: it counts for no input."""
    import torch
    import torch._dynamo  # takes seconds
    from inputs import prepare

    torch.set_num_threads(1)
    prepare()
    for kind in kinds:
        for number in range(3):
            attempt(kind, number)
    gc.freeze()


@dataclass
class Chunk:
    """Inputs of a kind that a process reads."""

    kind: str
    start: int
    count: int
    outcomes: list[str] = field(default_factory=list)
    heard: float = 0.0  # when the process last told an outcome

    def fork(self) -> tuple[Connection, BaseProcess]:
        """A process for the inputs that have no outcome yet."""
        context = multiprocessing.get_context("fork")
        answers, told = context.Pipe(duplex=False)
        first = self.start + len(self.outcomes)
        numbers = range(first, self.start + self.count)
        process = context.Process(target=_read_inputs, args=(self.kind, numbers, told))
        process.start()
        told.close()
        self.heard = time.monotonic()
        return answers, process


def _read_inputs(kind: str, numbers: range, told: Connection) -> None:
    """Attempt inputs and tell their outcomes, in a process that may die of one."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)  # libraries tell what is damaged, too
    limit = _size() + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    for number in numbers:
        told.send(attempt(kind, number))
        if number % 50 == 0:
            gc.collect()


def _size() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def attempt_all(chunks: Sequence[Chunk], jobs: int) -> Iterator[Chunk]:
    """Chunks with their outcomes: a process that dies or hangs is followed by another."""
    waiting = list(reversed(chunks))
    running: dict[Connection, tuple[Chunk, BaseProcess]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            chunk = waiting.pop()
            answers, process = chunk.fork()
            running[answers] = chunk, process
        ready = wait([*running], timeout=1.0)
        for answers, (chunk, process) in [*running.items()]:
            why = f"hung for more than {_WAIT:.0f} seconds"
            if answers in ready:
                try:
                    chunk.outcomes.append(answers.recv())
                    chunk.heard = time.monotonic()
                    continue
                except EOFError:
                    process.join()
                    why = f"ended its process with {process.exitcode}"
            elif time.monotonic() - chunk.heard < _WAIT:
                continue
            process.kill()
            process.join()
            answers.close()
            del running[answers]
            if (at := len(chunk.outcomes)) < chunk.count:
                chunk.outcomes.append(f"{chunk.kind} {chunk.start + at}: {why}")
            if len(chunk.outcomes) < chunk.count:
                waiting.append(chunk)
            else:
                yield chunk


def count_(counts: dict[str, Any], kind: str, outcome: str) -> None:
    """Add an outcome to the counts of its kind."""
    count = counts.setdefault(kind, {"tried": 0, **dict.fromkeys(OUTCOMES, 0), "findings": []})
    count["tried"] += 1
    if outcome in OUTCOMES:
        count[outcome] += 1
    else:
        count["findings"].append(outcome)


def fuzz(counts: dict[str, Any], inputs: int, kinds: Sequence[str], jobs: int, path: Path) -> None:
    """Try the next inputs of each kind, evenly, in several processes; counts are kept."""
    share = -(-inputs // len(kinds))
    first = {kind: counts.get(kind, {"tried": 0})["tried"] for kind in kinds}
    chunks = [
        Chunk(kind, first[kind] + at, min(_CHUNK, share - at))
        for at in range(0, share, _CHUNK)
        for kind in kinds
    ]
    for chunk in attempt_all(chunks, jobs):
        for outcome in chunk.outcomes:  # a whole chunk or none of it
            count_(counts, chunk.kind, outcome)
            if outcome not in OUTCOMES:
                print(outcome, file=sys.stderr)
        write_atomic(path, (json.dumps(counts, indent=1) + "\n").encode())
        tried = sum(c["tried"] for c in counts.values())
        print(f"{tried} inputs", file=sys.stderr)


def run() -> None:
    """The command."""
    from inputs import KINDS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="of all kinds together")
    parser.add_argument("--kind", choices=list(KINDS), nargs="*", default=list(KINDS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--counts", type=Path, default=reliability.FUZZ)
    parser.add_argument("--page", type=Path, default=reliability.PAGE)
    parser.add_argument("--again", metavar="KIND NUMBER", help="try one input, in this process")
    arguments = parser.parse_args()
    if arguments.again:
        kind, _, number = arguments.again.rpartition(" ")
        print(attempt(kind, int(number)))
        return
    counts = reliability.read(arguments.counts)
    warm_up(arguments.kind)
    try:
        fuzz(counts, arguments.inputs, arguments.kind, arguments.jobs, arguments.counts)
    finally:
        write = functools.partial(reliability.write_page, arguments.page)
        write(fuzz=arguments.counts, chaos=reliability.CHAOS)
    sys.exit(any(c["findings"] for c in counts.values()))


if __name__ == "__main__":
    run()
