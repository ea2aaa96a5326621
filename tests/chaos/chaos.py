"""Commands that are killed, starved or started twice at random moments, by seed: `make chaos`.

A trial starts a command, disturbs it, and checks that what is there is whole and what was there
before is as it was. Then it starts the command again, which must end with the same bytes as one
that was left alone. This process computes nothing itself: it forks, so that a trial is at work at
once, and its moment falls into the work and not into the import of torch. The counts are kept in a
file, from which the next call goes on.
"""

import argparse
import contextlib
import faulthandler
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuzz
import reliability
import torch

import mue.plots.health
import mue.plots.history
import mue.plots.overlays
import mue.plots.style  # noqa: F401  imported before the first fork
from mue.cli.main import main
from mue.runs.folder import RunError
from mue.runs.weights import load_tensors
from mue.runtime.atomic import UNFINISHED, write_atomic

torch.set_num_threads(1)
os.environ["MUE_COMMIT"] = "chaos"  # a commit meanwhile would make another config.json
DISTURBANCES = ("kill", "stop", "disk", "memory", "remove", "concurrent")
Files = dict[str, bytes]
_MISSES = 4
_PATIENCE = 120.0  # seconds on a quiet machine after which a command hangs


@dataclass(frozen=True, slots=True)
class Command:
    """A command whose result is in a folder.

    Attributes:
        words: Its arguments; OUT is the folder, and other capitals are parts of the work folder.
        again: What is added when it is started again.
        kept: Endings of the files that do not depend on the time.
        reads: The part of the work folder that it reads.
        grows: Whether its folder is written file by file, or appears as a whole.
    """

    words: str
    again: tuple[str, ...] = ()
    kept: tuple[str, ...] = ("",)
    reads: str = ""
    grows: bool = False


_TINY = (
    "--model.levels 4 8 --model.tail 8 --model.widths 4 --train.batch 4 --train.log-every 1 "
    "--train.save-every 5 --train.steps"
)
COMMANDS = {
    "train": Command(
        f"train toy --out OUT {_TINY} 60",
        again=("--resume",),
        kept=("weights.safetensors", "state.safetensors", "config.json"),
        grows=True,
    ),
    "train with validation": Command(
        f"train toy --out OUT --train.validate-every 10 --train.validate-inputs 8 "
        f"--train.calibrate {_TINY} 20",
        again=("--resume",),
        kept=("weights.safetensors", "state.safetensors", "config.json"),
        grows=True,
    ),
    "import folder": Command("data import folder SOURCE --out OUT", reads="SOURCE"),
    "predict": Command("predict RUN IMAGES --out OUT --k 3", reads="IMAGES", grows=True),
    "export": Command("export RUN OUT", reads="RUN"),
    "calibrate": Command("calibrate RUN OUT --inputs 48", reads="RUN"),
}


def contents(folder: Path) -> Files:
    """All files below a folder, by their path in it, but not what a kill may leave."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(UNFINISHED)
    }


def start(
    words: Sequence[str],
    said: Path,
    before: Callable[[], None] | None = None,
    grown: Path | None = None,
) -> int:
    """Fork a process that runs a command; what it says goes to a file.

    To `grown` it writes by how many bytes its address space has grown at most.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        with said.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        faulthandler.enable()
        if before is not None:
            before()
        began = _address_space("VmSize")
        main(list(words))
        code = 0
        if grown is not None:
            grown.write_text(str(_address_space("VmPeak") - began))
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _address_space(name: str) -> int:
    """Bytes of address space of this process, now (VmSize) or at most (VmPeak)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def end(pid: int, said: Path) -> int:
    """The exit code of a process, negative for a signal; where it hangs, it says where."""
    began = fuzz.quiet_clock(pid)
    while fuzz.quiet_clock(pid) - began < _PATIENCE:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGABRT)
    os.waitpid(pid, 0)
    raise AssertionError(f"it hung for {_PATIENCE:.0f} seconds: {said.read_text()[-1000:]}")


def check_tensors(folder: Path) -> None:
    """All tensors below a folder are whole, by their digest, whenever one looks."""
    for path in sorted(folder.rglob("*.safetensors")):
        if not any(part.startswith(UNFINISHED) for part in path.relative_to(folder).parts):
            try:
                load_tensors(path)
            except RunError as error:
                raise AssertionError(f"tensors that do not load: {error}") from None


def leftovers(folder: Path) -> list[str]:
    """What is unfinished below a folder."""
    return [p.relative_to(folder).as_posix() for p in sorted(folder.rglob(f"{UNFINISHED}*"))]


class Chaos:
    """A work folder with what commands read, and the results of those that were left alone."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.whole: dict[str, Files] = {}
        self.seconds: dict[str, float] = {}
        self.memory: dict[str, int] = {}  # bytes by which a command grows
        work.mkdir(parents=True, exist_ok=True)
        self._must("data", "new", str(work / "SOURCE"), "--cases", "60")
        images = work / "IMAGES"
        images.mkdir()
        for path in sorted((work / "SOURCE" / "imagesTs").iterdir())[:8]:
            shutil.copy(path, images)
        data = str(work / "DATA")
        self._must("data", "import", "folder", str(work / "SOURCE"), "--out", data)
        steps = f"--model.code-level 1 {_TINY} 20".split()
        run = ["train", "auto", "--data", data, "--out", str(work / "RUN"), "--minutes", "1"]
        self._must(*run, *steps, "--train.batch", "8")

    def _must(self, *words: str) -> None:
        said = self.work / "said"
        if code := end(start(words, said, grown=self.work / "grown"), said):
            raise RuntimeError(f"{' '.join(words)} ended with {code}: {said.read_text()}")

    def words(self, command: Command, out: Path, root: Path) -> list[str]:
        """The arguments of a command, by the inputs in a folder."""
        words = command.words.split()
        if "calibrate" in words and "RUN" in words:
            words += ["--data", "DATA"]
        places = {part: str(root / part) for part in ("SOURCE", "IMAGES", "RUN", "DATA")}
        return [str(out) if w == "OUT" else places.get(w, w) for w in words]

    def reference(self, name: str) -> tuple[Files, float]:
        """What a command leaves that nobody disturbs, and how long it takes."""
        if name not in self.whole:
            out = self.work / "whole" / name.replace(" ", "-")
            began = time.monotonic()
            self._must(*self.words(COMMANDS[name], out, self.work))
            self.seconds[name] = time.monotonic() - began
            self.memory[name] = int((self.work / "grown").read_text())
            self.whole[name] = self._kept(COMMANDS[name], out)
        return self.whole[name], self.seconds[name]

    def _kept(self, command: Command, out: Path) -> Files:
        """What a command leaves; the records of `mue predict` hold the path of their image."""
        root = out.parents[1]  # with what the command reads
        return {
            name: content.replace(str(root).encode(), b"")
            for name, content in contents(out).items()
            if name.endswith(command.kept)
        }

    def trial(self, name: str, disturbance: str, number: int) -> bool:
        """Disturb a command. Whether it was hit.

        It was if it was still at work at the moment of a kill, a signal, a removal or a second
        process, or if too small a disk or memory made it fail.

        Raises:
            AssertionError: Something is half-written, lost or different.
        """
        rng = random.Random(f"{name} {disturbance} {number}")
        command, (whole, seconds) = COMMANDS[name], self.reference(name)
        with tempfile.TemporaryDirectory(dir=self.work, prefix="trial-") as there:
            root, out = Path(there), Path(there) / "place" / "out"
            for part in ("SOURCE", "IMAGES", "RUN", "DATA"):
                if part == command.reads and disturbance == "remove":
                    shutil.copytree(self.work / part, root / part)
                else:
                    (root / part).symlink_to(self.work / part)
            (root / "place").mkdir()
            (root / "place" / "mine.txt").write_text("untouched")
            words, said = self.words(command, out, root), root / "said"
            moment = rng.uniform(0, 1.05 * seconds)
            before = None
            if disturbance == "disk":
                before = _small_disk(rng, whole)
            elif disturbance == "memory":
                before = _little_memory(rng, self.memory[name])
            removed = set[str]()
            pid = start(words, said, before)
            other = None
            if disturbance in ("kill", "stop", "remove"):
                time.sleep(moment)
            elif disturbance == "concurrent":
                time.sleep(rng.choice((0.0, moment)))
            alive = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            if disturbance == "kill":
                os.kill(pid, signal.SIGKILL)
            elif disturbance == "stop":
                os.kill(pid, rng.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))
            elif disturbance == "remove":
                removed = _remove(rng, root / command.reads if command.reads else out, root)
            elif disturbance == "concurrent":
                other = start(words, root / "said-other")
            code = end(pid, said)
            codes = [code] if other is None else [code, end(other, root / "said-other")]
            self._check(command, disturbance, codes, out, root)
            check_tensors(out)
            if disturbance == "remove":
                self._check_removed(command, code, removed, out, root, whole)
                words = self.words(command, out, self.work)  # what was removed is there again
            if not self._complete(command, out, whole):
                no_run = command.reads or not (out / "config.json").is_file()
                if disturbance == "remove" and no_run:  # it may be the result of what was left
                    shutil.rmtree(out, ignore_errors=True)
                self._restart(command, words, out, whole, said)
                check_tensors(out)
            if out.is_dir() and (left := leftovers(out)):
                raise AssertionError(f"it leaves {left[0]} after it is started again")
            return alive if disturbance in ("kill", "stop", "remove", "concurrent") else any(codes)

    def _check(
        self, command: Command, disturbance: str, codes: Sequence[int], out: Path, root: Path
    ) -> None:
        """What a disturbed command may leave: whole files, a sentence, and nothing else."""
        whole = self.whole[next(n for n, c in COMMANDS.items() if c is command)]
        text = "".join(
            (root / n).read_text() for n in ("said", "said-other") if (root / n).exists()
        )
        if "Traceback" in text:
            raise AssertionError(f"a traceback: {text[-300:]}")
        if (root / "place" / "mine.txt").read_text() != "untouched":
            raise AssertionError("a file next to the result has changed")
        left = [p.name for p in (root / "place").iterdir() if p.name not in ("out", "mine.txt")]
        if left and (-signal.SIGKILL not in codes and disturbance != "memory"):
            raise AssertionError(f"left {left[0]} behind")
        if any(not n.startswith(UNFINISHED) for n in left):
            raise AssertionError(f"left {left} behind")
        found = self._kept(command, out)
        if disturbance == "remove" or not out.exists():
            return
        if not command.grows and contents(out) and found != whole:
            raise AssertionError(f"half a result is there: {sorted(found)}")
        if "predict" in command.words:
            wrong = [n for n, content in found.items() if whole.get(n) != content]
            if wrong:
                raise AssertionError(f"{wrong[0]} is not what it is without a disturbance")
        if disturbance == "concurrent" and 0 not in codes:
            raise AssertionError(f"neither of two commands succeeded: {codes}, {text[-300:]}")
        if disturbance == "concurrent" and found != whole:
            raise AssertionError("two commands at once gave another result than one")

    def _check_removed(
        self, command: Command, code: int, removed: set[str], out: Path, root: Path, whole: Files
    ) -> None:
        """Where files were removed meanwhile, only an error, all or the result of the rest is true.

        A training notices no file that is removed of its own folder: the others are right.
        """
        found = self._kept(command, out)
        if code and command.reads and not command.grows and contents(out):
            raise AssertionError(f"half a result is there: {sorted(found)}")
        if code or found == whole:
            return
        if not command.reads:
            wrong = [n for n, content in found.items() if whole.get(n) != content]
            if lost := wrong or sorted(whole.keys() - found.keys() - removed):
                raise AssertionError(f"it succeeded, and {lost[0]} is lost or wrong")
            return
        again, said = root / "rest", root / "said-rest"
        words = self.words(command, again, root)
        if end(start(words, said), said) or self._kept(command, again) != found:
            raise AssertionError(f"it succeeded without {sorted(removed)}, and lost more than that")

    def _complete(self, command: Command, out: Path, whole: Files) -> bool:
        return out.is_dir() and self._kept(command, out) == whole

    def _restart(
        self, command: Command, words: list[str], out: Path, whole: Files, said: Path
    ) -> None:
        code = end(start([*words, *command.again], said), said)
        if code:
            raise AssertionError(f"started again, it ends with {code}: {said.read_text()[-300:]}")
        found = self._kept(command, out)
        if found.keys() != whole.keys():
            raise AssertionError(f"started again, it leaves {sorted(found)}")
        if wrong := [n for n in whole if found[n] != whole[n]]:
            raise AssertionError(f"started again, it gives another {wrong[0]}")


def _small_disk(rng: random.Random, whole: Files) -> Callable[[], None]:
    """Files of at most so many bytes, as on a full disk."""
    size = rng.randrange(max(len(content) for content in whole.values()) + 1000)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def _little_memory(rng: random.Random, need: int) -> Callable[[], None]:
    """A part of the memory that a command needs."""
    more = int(rng.uniform(0, 0.7) * need)

    def limit() -> None:
        most = _address_space("VmSize") + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    return limit


def _remove(rng: random.Random, folder: Path, root: Path) -> set[str]:
    """Remove a file of a folder, or the folder at once; returns the names in it that are gone."""
    files = sorted(p for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else []
    names = {p.relative_to(folder).as_posix() for p in files}
    if rng.random() < 0.2:
        with contextlib.suppress(FileNotFoundError):
            folder.rename(root / "removed")
        return names
    if files:
        with contextlib.suppress(FileNotFoundError):
            (file := rng.choice(files)).unlink()
            return {file.relative_to(folder).as_posix()}
    return set()


def disturb(
    counts: dict[str, Any],
    trials: int,
    pairs: Sequence[tuple[str, str]],
    work: Path,
    path: Path | None = None,
) -> list[str]:
    """Disturb each pair of command and disturbance until so many more trials have hit.

    A pair is left after `_MISSES` times as many trials; returns what was found now.
    """
    chaos, found = Chaos(work), list[str]()
    for name, disturbance in pairs:
        key = f"{name}: {disturbance}"
        count = counts.setdefault(key, {"tried": 0, "hit": 0, "findings": []})
        wanted, tried = count["hit"] + trials, 0
        while count["hit"] < wanted and tried < _MISSES * trials:
            tried += 1
            try:
                count["hit"] += chaos.trial(name, disturbance, count["tried"])
            except AssertionError as error:
                found.append(f"{key} {count['tried']}: {error}")
                count["findings"].append(found[-1])
                print(found[-1], file=sys.stderr)
            count["tried"] += 1
            if path is not None:
                write_atomic(path, (json.dumps(counts, indent=1) + "\n").encode())
        hits = sum(c["hit"] for c in counts.values())
        print(f"{sum(c['tried'] for c in counts.values())} trials, {hits} hits", file=sys.stderr)
    return found


def run() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--trials", type=int, default=20, help="that hit, of each command and disturbance"
    )
    parser.add_argument("--command", choices=list(COMMANDS), nargs="*", default=list(COMMANDS))
    parser.add_argument("--disturbance", choices=DISTURBANCES, nargs="*", default=DISTURBANCES)
    parser.add_argument("--counts", type=Path, default=reliability.CHAOS)
    parser.add_argument("--page", type=Path, default=reliability.PAGE)
    arguments = parser.parse_args()
    counts = reliability.read(arguments.counts)
    pairs = [(c, d) for d in arguments.disturbance for c in arguments.command]
    with tempfile.TemporaryDirectory(prefix="mue-chaos-") as work:
        found = disturb(counts, arguments.trials, pairs, Path(work) / "work", arguments.counts)
    reliability.write_page(arguments.page, chaos=arguments.counts)
    sys.exit(bool(found))


if __name__ == "__main__":
    run()
