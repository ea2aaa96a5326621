"""Whether two checkouts give the same results, and whether one is slower.

    python benchmarks/compare_checkouts.py BEFORE AFTER [--speed]

On a CPU, to the bit: answers and modes of every bundled model on 64 images of noise, and of those
of the guessing game on 64 rows of test digits too; the weights that short trainings end with, of
presets and by `mue train auto` on prepared data; every number that `mue evaluate`, `mue compare`
and `mue predict --json` give. Prints a table, in which a field that was renamed is the same if its
numbers are, and exits with 1 where anything differs.

With `--speed`, on a GPU if there is one, steps of training and 16 answers are timed instead: both
checkouts are loaded, and take turns. The ratio is after / before; it exits with 1 above `--limit`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load_file, save_file

from checkout_probe import REPLY

INPUTS = 64
SIZES = {"guess": (28, 112), "lidc": (128, 128)}
SHORT = (
    "--train.steps 100 --train.validate-every 50 --train.validate-inputs 64 --train.log-every 10"
)
TRAINED = {
    **{name: f"{name} {SHORT}" for name in ("toy", "toy-vq", "toy-probunet", "vector")},
    "guess-quick": f"guess-quick {SHORT.replace('100', '10').replace('50', '5')}",
    "auto": "auto --data prepared --train.steps 12",
    "auto-unet": "auto --baseline unet --data prepared --train.steps 12",
}
"""Short trainings, by the run folder of each."""
EXAMPLE = (
    "data new example --cases 40",
    "data import folder example --out prepared",
)
EVALUATED = {
    **dict.fromkeys(("guess", "guess-exact", "guess-probunet"), "--inputs 100"),
    **dict.fromkeys(("toy", "toy-vq", "toy-probunet", "vector"), "--inputs 100"),
    "auto": "--data prepared",
}
COMPARED = {
    "guess": "guess guess-exact guess-probunet --inputs 20",
    "auto": "auto auto-unet --data prepared",
}
PREDICTED = ("auto", "lidc-exact")
TIMED = {
    "train guess": 60,
    "train lidc": 60,
    "train lidc-exact": 60,
    "answer lidc-exact": 200,
}
"""What is timed, and how many calls a repeat has."""
PASSING = {"seconds", "version", "commit", "torch", "memory", "per_second"}
"""Keys of a report whose values may differ between two runs of the same code."""
PROBE = Path(__file__).with_name("checkout_probe.py")
Tensors = dict[str, NDArray[Any]]
Checkouts = tuple[Path, Path]


@dataclass(frozen=True)
class Row:
    """A line of the table: what was compared, whether it is the same, and how far it is off."""

    what: str
    same: bool
    note: str

    def __str__(self) -> str:
        return f"{self.what:<34}{'same' if self.same else 'DIFFERENT':<11}{self.note}"


# --- in a checkout --------------------------------------------------------------------------------


def environment(checkout: Path, *, gpu: bool = False) -> dict[str, str]:
    """The variables of a process that imports the package of this checkout."""
    path = os.pathsep.join(str((checkout / part).resolve()) for part in ("src", "benchmarks"))
    found = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}
    return found if gpu else {**found, "CUDA_VISIBLE_DEVICES": ""}


def run_both(checkouts: Checkouts, folders: Checkouts, *words: str) -> list[str]:
    """Run Python in both checkouts side by side. What each prints."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda at: run(*at, *words), zip(checkouts, folders, strict=True)))


def run(checkout: Path, folder: Path, *words: str) -> str:
    """Run Python in a checkout, with `folder` as the working directory. What it prints."""
    command = [sys.executable, *words]
    done = subprocess.run(  # noqa: S603
        command, cwd=folder, env=environment(checkout), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: {' '.join(words)} failed\n{done.stderr}")
    return done.stdout


# --- results --------------------------------------------------------------------------------------


def inputs(checkout: Path) -> dict[str, NDArray[np.float32]]:
    """Images for each bundled model: noise, and rows of test digits for the guessing game."""
    random = np.random.default_rng(0)
    packed = next((checkout / "src").rglob("mnist/test.xz")).read_bytes()
    digits = np.frombuffer(lzma.decompress(packed), np.uint8)[: 10_000 * 784].reshape(-1, 28, 28)
    rows = digits[random.integers(len(digits), size=(INPUTS, 4))]
    made = {"guess": (np.concatenate(list(rows.swapaxes(0, 1)), axis=2) / 255)[:, None]}
    found: dict[str, NDArray[np.float32]] = {}
    for folder in sorted((checkout / "src/mue/bundled").iterdir()):
        kind = folder.name.partition("-")[0]
        noise = random.random((INPUTS, 1, *SIZES[kind]))
        images = [noise, made[kind]] if kind in made else [noise]
        found[folder.name] = np.concatenate(images).astype(np.float32)
    return found


def compared(what: str, before: Tensors, after: Tensors) -> Row:
    """Whether two sets of arrays have the same names, shapes, types and bits."""
    if before.keys() != after.keys():
        return Row(what, False, f"only in one: {', '.join(sorted(before.keys() ^ after.keys()))}")
    off: list[str] = []
    for name, a in before.items():
        b = after[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            off.append(f"{name} is {a.dtype}{a.shape}, now {b.dtype}{b.shape}")
        elif a.tobytes() != b.tobytes():
            far = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
            off.append(f"{name} off by up to {far:.3g}")
    count = sum(a.size for a in before.values())
    return Row(what, not off, "; ".join(off) or f"{count:,} numbers")


def numbers(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every number of a report with the keys that lead to it."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key not in PASSING:
                yield from numbers(value, (*path, key))
    elif isinstance(content, list):
        for i, value in enumerate(content):
            yield from numbers(value, (*path, str(i)))
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield path, content


def compared_reports(what: str, before: Any, after: Any) -> Row:
    """Whether every number of a report is still there: under its key, or under a new one."""
    old, new = dict(numbers(before)), dict(numbers(after))
    off = [k for k in old.keys() & new.keys() if old[k] != new[k]]
    moved = Counter(old[k] for k in old.keys() - new.keys())
    lost = moved - Counter(new[k] for k in new.keys() - old.keys())
    notes = [f"{'.'.join(k)} was {old[k]}, is {new[k]}" for k in sorted(off)]
    if lost:
        gone = sorted(k for k in old.keys() - new.keys() if old[k] in lost)
        keys = dict.fromkeys(".".join(part for part in k if not part.isdigit()) for k in gone)
        notes.append(f"{lost.total()} numbers are gone, of {', '.join(keys)}")
    note = "".join(f"\n    {note}" for note in notes)
    note = note or f"{len(old)} numbers, {moved.total()} under new keys"
    return Row(what, not notes, note)


def reports(folder: Path) -> dict[str, Any]:
    """All reports below a folder as one, keys of which are the folders they are in."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.json")):
        node = found
        for part in path.relative_to(folder).parent.parts:
            node = node.setdefault(part, {})
        node.update(json.loads(path.read_text()))
    return found


def log(folder: Path) -> list[Any]:
    """The records of the log of a run."""
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def compare_results(checkouts: Checkouts, work: Path) -> Iterator[Row]:
    """The rows of the table, as they are found."""
    given = inputs(checkouts[0])
    save_file(given, work / "inputs.safetensors")
    folders = (work / "before", work / "after")
    for folder in folders:
        folder.mkdir()
    run_both(checkouts, folders, "-P", str(PROBE), "answers", "../inputs.safetensors", ".")
    for model in given:
        found = [load_file(folder / f"{model}.safetensors") for folder in folders]
        yield compared(f"answers of {model}", *found)
    mue = ("-m", "mue")
    for line in EXAMPLE:
        run_both(checkouts, folders, *mue, *line.split())
    for name, line in TRAINED.items():
        run_both(checkouts, folders, *mue, "train", *line.split(), "--seed", "0", "--out", name)
        found = [load_file(folder / name / "weights.safetensors") for folder in folders]
        yield compared(f"weights of mue train {name}", *found)
        yield compared_reports(f"log of mue train {name}", *(log(f / name) for f in folders))
        yield compared_reports(f"health of mue train {name}", *(reports(f / name) for f in folders))
    for name, line in EVALUATED.items():
        said = run_both(checkouts, folders, *mue, "evaluate", name, *line.split(), "--json")
        yield compared_reports(f"mue evaluate {name}", *map(json.loads, said))
    for name, line in COMPARED.items():
        run_both(checkouts, folders, *mue, "compare", *line.split(), "--out", f"compared-{name}")
        found = [reports(folder / f"compared-{name}") for folder in folders]
        yield compared_reports(f"mue compare {name}", *found)
    images = sorted((folders[0] / "example" / "imagesTs").iterdir())[:4]
    Image.fromarray((255 * given["lidc-exact"][0, 0]).astype(np.uint8)).save(work / "noise.png")
    for name in PREDICTED:
        about = [str(path) for path in (images if name == "auto" else [work / "noise.png"])]
        said = run_both(checkouts, folders, *mue, "predict", name, *about, "--json")
        yield compared_reports(f"mue predict {name}", *map(json.loads, said))


# --- speed ----------------------------------------------------------------------------------------


class Timer:
    """A process that times steps when it is asked to (`checkout_probe.serve`)."""

    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, *words],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str, calls: int) -> None:
        """Let it take so many steps."""
        assert self._process.stdin is not None
        print(what, calls, file=self._process.stdin, flush=True)

    def seconds(self) -> float:
        """Wait for them: seconds of one."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(REPLY):
                return float(line.split()[1])
        raise SystemExit("a process ended before it had measured anything; its errors are above")

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def take_turns(
    timers: Sequence[Timer], jobs: Sequence[str], calls: int, repeats: int
) -> list[list[float]]:
    """The seconds of each repeat of each process: what slows the machine for a while slows all."""
    taken: list[list[float]] = [[] for _ in timers]
    for _ in range(repeats):
        for timer, job, seconds in zip(timers, jobs, taken, strict=True):
            timer.ask(job, calls)
            seconds.append(timer.seconds())
    return taken


def compare_speed(
    checkouts: Checkouts, timed: dict[str, int], repeats: int
) -> Iterator[tuple[str, list[list[float]]]]:
    """The seconds of each repeat, before and after, of everything that is timed."""
    timers = [
        Timer("-P", str(PROBE), "speed", env=environment(checkout, gpu=True))
        for checkout in checkouts
    ]
    try:
        for what, calls in timed.items():
            for timer in timers:  # compilers work side by side
                timer.ask(what, max(1, calls // 2))
            for timer in timers:
                timer.seconds()
            taken = take_turns(timers, [what, what], calls, repeats)
            yield what, taken
    finally:
        for timer in timers:
            timer.close()


# --- both -----------------------------------------------------------------------------------------


def main() -> None:
    """Compare, print, and exit with 1 where something is not as it was."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--speed", action="store_true", help="compare times instead of results")
    parser.add_argument("--only", nargs="+", choices=TIMED, default=list(TIMED), help="is timed")
    parser.add_argument("--repeats", type=int, default=9, help="of each measurement of time")
    parser.add_argument("--limit", type=float, default=1.05, help="the highest ratio allowed")
    options = parser.parse_args()
    checkouts, good = (options.before, options.after), True
    timed = {what: TIMED[what] for what in options.only}
    if options.speed:
        print(f"{'':<20}{'before, ms':>12}{'after, ms':>12}{'ratio':>8}", flush=True)
        for what, taken in compare_speed(checkouts, timed, options.repeats):
            old, new = (1e3 * statistics.median(seconds) for seconds in taken)
            good &= new / old <= options.limit
            print(f"{what:<20}{old:>12.3f}{new:>12.3f}{new / old:>8.3f}", flush=True)
    else:
        with tempfile.TemporaryDirectory() as work:
            for row in compare_results(checkouts, Path(work)):
                good &= row.same
                print(row, flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
