"""What each piece of the acceleration gains: a step of training with everything, and without one.

    python benchmarks/ablation.py [--only guess lidc lidc-exact answers] [--out DIR] [--write]

On a GPU, for each preset: one process with all pieces of `mue.kernels.Pieces`, and one for each
piece that is turned off alone. They compile side by side and are then timed in turn. 16 answers of
`lidc-exact` are timed with and without CUDA graphs. Writes ablation.json after each column, keeps
the columns that are there from before and, with `--write`, rewrites the table of
docs/performance.md. What is slower by less than 5 % without a piece, in every column, does
not need it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from checkout_probe import Step, serve
from compare_checkouts import Timer, take_turns
from mue.inference.load import load
from mue.kernels import Pieces
from mue.kernels.plan import plan
from mue.runs.folder import commit
from mue.runtime.atomic import write_atomic
from mue.runtime.devices import choose_device, device_name
from pages import ROOT, insert, markdown
from timing.setups import ours
from timing.training import preset_job, workload_config, workloads

PRESETS = ("guess", "lidc", "lidc-exact")
ALL, ANSWERS = "all", "16 answers"
REPEATS, STEPS, CALLS = 6, 10, 100
PAYS = 0.05
"""A piece stays if some column is slower by more than this without it."""
Columns = Mapping[str, Mapping[str, float]]
"""Seconds of a step, by preset, then by the piece that is off."""


# --- in a process of its own ----------------------------------------------------------------------


def pieces_without(name: str) -> Pieces:
    """Everything, or everything but one piece."""
    return Pieces() if name == ALL else dataclasses.replace(Pieces(), **{name: False})


def training_step(name: str) -> Step:
    """A step of `PRESET/PIECE`, the piece being off."""
    preset, _, piece = name.partition("/")
    return preset_job(preset, choose_device("cuda"), pieces=pieces_without(piece))


def answering_step(name: str) -> Step:
    """16 answers of `lidc-exact` to one image, with CUDA graphs or without."""
    predictor = load("lidc-exact", device="cuda", accelerate=name == ALL)
    x = torch.rand(1, 1, 128, 128, device=predictor.device)
    return lambda: predictor.propose(x, 16, normalized=True)


# --- the measurement ------------------------------------------------------------------------------


def used_pieces(preset: str) -> list[str]:
    """The pieces that a training of the preset takes on this GPU."""
    device = choose_device("cuda")
    workload = next(w for w in workloads(device) if w.preset == preset)
    pieces = plan(ours(workload_config(workload, device)), device).pieces
    return [f.name for f in dataclasses.fields(Pieces) if getattr(pieces, f.name)]


def measure_training(preset: str) -> dict[str, float]:
    """Seconds of a step, by the piece that is off."""
    names = [ALL, *used_pieces(preset)]
    jobs = [f"train {preset}/{name}" for name in names]
    timers = [_started(jobs[0], STEPS)]
    timers[0].seconds()  # fills the cache of the compiler for the others
    timers += [_started(job, STEPS) for job in jobs[1:]]
    return _timed(timers, jobs, names, STEPS)


def measure_answers() -> dict[str, float]:
    """Seconds of 16 answers, with CUDA graphs and without."""
    names = [ALL, "cuda_graph"]
    jobs = [f"answer {name}" for name in names]
    timers = [_started(job, STEPS) for job in jobs]
    timers[0].seconds()
    return _timed(timers, jobs, names, CALLS)


def _started(job: str, calls: int) -> Timer:
    timer = Timer(__file__, "--worker")
    timer.ask(job, calls)
    return timer


def _timed(timers: list[Timer], jobs: list[str], names: list[str], calls: int) -> dict[str, float]:
    """Medians. All but the first process are still compiling."""
    try:
        for timer in timers[1:]:
            timer.seconds()
        taken = take_turns(timers, jobs, calls, REPEATS)
    finally:
        for timer in timers:
            timer.close()
    return {name: statistics.median(t) for name, t in zip(names, taken, strict=True)}


# --- the page -------------------------------------------------------------------------------------


def table(found: Columns) -> str:
    """A row for each piece: how long a step takes without it, and how much longer that is."""
    names = dict.fromkeys(name for column in found.values() for name in column if name != ALL)
    rows = [["nothing", *(f"{1e3 * column[ALL]:.3f}" for column in found.values())]]
    for name in names:
        cells = [_cell(column, name) for column in found.values()]
        rows.append([f"`{name}`", *cells])
    columns = [f"`{c}`, ms" if c != ANSWERS else f"{c} of `lidc-exact`, ms" for c in found]
    return markdown(["off", *columns], rows)


def _cell(column: Mapping[str, float], name: str) -> str:
    if name not in column:
        return ""
    slower = column[name] / column[ALL] - 1
    text = f"{1e3 * column[name]:.3f} ({slower:+.0%})"
    return f"**{text}**" if slower > PAYS else text


def unneeded(found: Columns) -> list[str]:
    """The pieces without which nothing is slower by more than 5 %."""
    names = dict.fromkeys(name for column in found.values() for name in column if name != ALL)
    return [
        name
        for name in names
        if all(c[name] / c[ALL] - 1 <= PAYS for c in found.values() if name in c)
    ]


def page(content: Mapping[str, Any]) -> str:
    """The section of docs/performance.md."""
    made = f"{content['device']}, torch {content['torch']}, commit {content['commit'][:12]}"
    words = f"On {made}. In bold: more than {PAYS:.0%} slower without the piece."
    if names := unneeded(content["seconds"]):
        words += f" Nothing is that much slower without {', '.join(f'`{n}`' for n in names)}."
    return f"    {content['command']}\n\n{table(content['seconds'])}\n\n{words}"


def main() -> None:
    """Measure, write, print."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    every = [*PRESETS, "answers"]
    parser.add_argument("--only", nargs="+", choices=every, default=every, help="columns")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "ablation")
    parser.add_argument("--write", action="store_true", help="rewrite docs/performance.md")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve({"train": training_step, "answer": answering_step})
        return
    path, device = options.out / "ablation.json", choose_device("cuda")
    seconds = json.loads(path.read_text())["seconds"] if path.is_file() else {}
    for name in options.only:
        column = ANSWERS if name == "answers" else name
        seconds[column] = measure_answers() if name == "answers" else measure_training(name)
        content = {
            "command": "python benchmarks/ablation.py --write",
            "device": device_name(device),
            "torch": torch.__version__,
            "commit": commit(),
            "seconds": {c: seconds[c] for c in (*PRESETS, ANSWERS) if c in seconds},
        }
        write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
    if options.write:
        insert(ROOT / "docs" / "performance.md", page(json.loads(path.read_text())), "ablation")
    print(page(json.loads(path.read_text())))


if __name__ == "__main__":
    sys.exit(main())
