"""Commands on a busy machine: alone, several at once, and beside programs that never sleep.

Each number is the time until the last of the commands has ended, in seconds of the clock. A
machine that does nothing else is assumed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from mue.runs.folder import commit
from mue.runtime.devices import device_name
from pages import ROOT, insert, markdown

PAGE = ROOT / "docs" / "performance.md"
SITUATIONS = ("alone", "two at once", "four at once", "beside a spinning program")
_SPIN = "while True: pass"


@contextlib.contextmanager
def spinning(count: int) -> Iterator[None]:
    """Programs that take all of a core each."""
    command = [sys.executable, "-c", _SPIN]
    programs = [subprocess.Popen(command) for _ in range(count)]  # noqa: S603
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def seconds(
    words: Sequence[str],
    *,
    copies: int = 1,
    threads: int = 0,
    spinners: int = 0,
    serial: bool = False,
) -> float:
    """How long copies of a command take together; OUT is a folder for each of them."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    environment |= {"OMP_NUM_THREADS": str(threads)} if threads else {}

    def start(out: Path) -> subprocess.Popen[bytes]:
        given = [str(out) if w == "OUT" else w for w in words]
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "mue", *given],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    with tempfile.TemporaryDirectory() as name, spinning(spinners):
        running: list[subprocess.Popen[bytes]] = []
        began = time.monotonic()
        for i in range(copies):
            running.append(start(Path(name) / str(i)))
            if serial:
                running[-1].wait()
        if any(process.wait() for process in running):
            raise RuntimeError(f"mue {' '.join(words)} failed")
        return time.monotonic() - began


def row(words: Sequence[str], threads: int) -> list[float]:
    """The seconds of a command in each of SITUATIONS."""
    how = ((1, 0), (2, 0), (4, 0), (1, 1))  # copies, spinning programs
    return [seconds(words, copies=c, threads=threads, spinners=s) for c, s in how]


def table(jobs: dict[str, Sequence[str]], rows: dict[tuple[str, int], list[float]]) -> str:
    """The rows as Markdown; 0 threads are all."""
    cells = [
        [
            f"`{name}`",
            str(threads or f"all ({os.cpu_count()})"),
            *(f"{s:.1f}" for s in rows[name, threads]),
        ]
        for name, threads in rows
        if name in jobs
    ]
    return markdown(("command", "threads", *SITUATIONS), cells)


def run() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="prepared slices of LIDC-IDRI")
    parser.add_argument("--split", default="val")
    parser.add_argument("--steps", type=int, help="of a training, by default those of the preset")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    train = ["train", "toy", "--out", "OUT"]
    train += ["--train.steps", str(arguments.steps)] if arguments.steps else []
    jobs: dict[str, Sequence[str]] = {"mue train toy": train}
    if arguments.data is not None:
        words = [
            "evaluate",
            "lidc-exact",
            "--data",
            str(arguments.data),
            "--split",
            arguments.split,
        ]
        jobs["mue evaluate lidc-exact"] = [*words, "--out", "OUT"]
    rows = {}
    for name, words in jobs.items():
        for threads in (1, 0) if os.cpu_count() == 2 else (1, 2, 0):
            rows[name, threads] = row(words, threads)
            print(name, threads or "all", *(f"{s:.1f}" for s in rows[name, threads]), flush=True)
    text = table(jobs, rows)
    together, serial = (seconds(train, copies=3, serial=s) for s in (False, True))
    text += (
        f"\n\nThree `mue train toy` at once take {together:.1f} s, one after the other "
        f"{serial:.1f} s: {together / serial:.2f} times as long."
    )
    if arguments.data is not None:
        words = jobs["mue evaluate lidc-exact"]
        alone, beside = rows["mue evaluate lidc-exact", 0][0], seconds(words, spinners=2)
        text += (
            f" `mue evaluate lidc-exact` takes {alone:.1f} s alone and {beside:.1f} s beside two "
            f"spinning programs: {beside / alone:.2f} times as long."
        )
    import torch

    about = f"{device_name(torch.device('cpu'))}, {os.cpu_count()} cores, commit {commit()}"
    text = f"Seconds until the last command has ended, {about}:\n\n{text}"
    print(text)
    if arguments.write:
        insert(PAGE, text, "busy")


if __name__ == "__main__":
    run()
