"""Damaged and hostile inputs of every kind, by seed: `make fuzz`.

An input depends on its kind and number alone, so that a finding can be repeated:
`make fuzz ARGS="--again 'image 123'"`. It is read as it was written, or refused by a MueError;
anything else is a finding. Processes of their own read the inputs, some hundred each, so that one
that crashes or hangs is a finding, too. The counts are kept in a file, from which the next call
goes on.
"""

import argparse
import functools
import gc
import json
import os
import queue
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import reliability

from mue.atomic import UNFINISHED, write_atomic
from mue.errors import MueError

SECONDS = 10
"""Of the processor, so that other load does not matter; the clock may show six times as many."""
MEMORY = 2 << 30
OUTCOMES = ("read", "changed", "refused")
_CHUNK = 400  # inputs of a process
_WAIT = 120.0  # seconds until a process counts as hanging, its start included


os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "inductor"))


class _TooLate(BaseException):
    """Not an Exception: whoever expects any of a decoder must not swallow it."""


def attempt(kind: str, number: int) -> str:
    """One of OUTCOMES, or what is wrong."""
    from inputs import KINDS

    def late(_: int, __: FrameType | None) -> None:
        raise _TooLate(f"took more than {SECONDS} seconds")

    def finding(error: BaseException) -> str:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return f"{kind} {number}: {type(error).__name__}: {str(error)[:300]!r} ({where})"

    usual = tempfile.tempdir
    before = {s: signal.signal(s, late) for s in (signal.SIGPROF, signal.SIGALRM)}
    _forget_peak()
    start, began = _peak(), time.process_time()
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given, out, temporary = (Path(name) / part for part in ("given", "out", "temporary"))
        for folder in (given, out, temporary):
            folder.mkdir()
        tempfile.tempdir = str(temporary)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(6 * SECONDS)
        try:
            outcome = KINDS[kind](random.Random(f"{kind} {number}"), given, out)
        except MueError:
            outcome = "refused"
        except (Exception, _TooLate) as error:
            outcome = finding(error)
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            for which, handler in before.items():
                signal.signal(which, handler)
            tempfile.tempdir = usual
        left = [*temporary.iterdir(), *out.rglob(f"{UNFINISHED}*")]
        left += [*out.iterdir()] if outcome == "refused" else []
        if left:
            return f"{kind} {number}: left {left[0].name} behind"
    if (took := time.process_time() - began) > SECONDS + 1:
        return f"{kind} {number}: took {took:.0f} seconds"
    if (taken := _peak() - start) > MEMORY:
        return f"{kind} {number}: took {taken >> 20} MiB"
    return outcome


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


def _work(kinds: Sequence[str], start: int, count: int) -> None:
    """Attempt inputs and print their outcomes, in a process that may die of one."""
    import torch
    import torch._dynamo  # takes seconds, which are of no input
    from inputs import prepare

    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)  # libraries tell what is damaged, too
    prepare()
    for kind in kinds:
        for number in range(3):  # what is loaded once counts for no input
            attempt(kind, number)
    limit = _size() + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    for kind in kinds:
        for number in range(start, start + count):
            print(json.dumps(attempt(kind, number)), file=answers, flush=True)
            if number % 50 == 0:
                gc.collect()


def _size() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _outcomes(kind: str, start: int, count: int) -> Iterator[str]:
    """The outcomes of inputs, by processes: one that dies or hangs is followed by another."""
    done = 0
    while done < count:
        command = [sys.executable, __file__, "--work", kind, str(start + done), str(count - done)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines: queue.Queue[str] = queue.Queue()
            reader = threading.Thread(target=_collect, args=(process, lines))
            reader.start()
            why = f"hung for more than {_WAIT:.0f} seconds"
            try:
                while done < count and (line := lines.get(timeout=_WAIT)):
                    yield json.loads(line)
                    done += 1
                why = f"ended its process with {process.wait()}"
            except queue.Empty:
                pass
            finally:
                process.kill()
                reader.join()
        if done < count:
            yield f"{kind} {start + done}: {why}"
            done += 1


def _collect(process: subprocess.Popen[str], lines: "queue.Queue[str]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")


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
    work: queue.Queue[tuple[str, int, int]] = queue.Queue()
    for at in range(0, share, _CHUNK):
        for kind in kinds:
            first = counts.get(kind, {"tried": 0})["tried"] + at
            work.put((kind, first, min(_CHUNK, share - at)))
    lock = threading.Lock()

    def worker() -> None:
        while True:
            try:
                kind, first, count = work.get_nowait()
            except queue.Empty:
                return
            outcomes = list(_outcomes(kind, first, count))
            with lock:  # a whole chunk or none of it, so that the numbers have no gaps
                for outcome in outcomes:
                    count_(counts, kind, outcome)
                    if outcome not in OUTCOMES:
                        print(outcome, file=sys.stderr)
                write_atomic(path, (json.dumps(counts, indent=1) + "\n").encode())
                tried = sum(c["tried"] for c in counts.values())
                print(f"{tried} inputs, {work.qsize()} chunks to go", file=sys.stderr)

    threads = [threading.Thread(target=worker) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run() -> None:
    """The command."""
    if sys.argv[1:2] == ["--work"]:
        _work([sys.argv[2]], int(sys.argv[3]), int(sys.argv[4]))
        return
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
    try:
        fuzz(counts, arguments.inputs, arguments.kind, arguments.jobs, arguments.counts)
    finally:
        write = functools.partial(reliability.write_page, arguments.page)
        write(fuzz=arguments.counts, chaos=reliability.CHAOS)
    sys.exit(any(c["findings"] for c in counts.values()))


if __name__ == "__main__":
    run()
