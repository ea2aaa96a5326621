"""Train presets over several seeds, and report the median and the worst of each.

    python benchmarks/seeds.py guess-quick --seeds 100-123
    python benchmarks/seeds.py lidc-exact --seeds 0-4 --data lidc
    make results-seeds [SEEDS=runs/seeds]

Each run is trained into OUT/PRESET/SEED and evaluated there on the test split. What is finished is
kept: an interrupted command goes on where it was. `--jobs` trainings run at once and share the
cores. Without a preset nothing is trained: the runs in OUT are put into docs/seeds.md, where the
rows of presets that have no run in OUT stay as they are.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import mue
from mue.config.presets import preset
from mue.config.schema import Config
from mue.runs.folder import load_config, origin
from mue.runtime.devices import Device, choose_device
from pages import SEEDS, between, insert, markdown, tables, write_over_seeds

REPORT = "report-test.json"
COLUMNS = ("preset", "metric", "seeds", "median", "worst", "at seed", "best", "commit")


def seeds(text: str) -> list[int]:
    """The seeds of `0-3` or `0,4,7`.

    >>> seeds("0-3,7")
    [0, 1, 2, 3, 7]
    """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def run(folder: Path, config: Config, data: Path | None = None) -> None:
    """Train and evaluate one seed, unless that is done."""
    if (folder / REPORT).is_file():
        theirs = replace(load_config(folder), compute=config.compute, modes=config.modes)
        if theirs != config:
            raise SystemExit(f"{folder} holds a run of another configuration; name another --out")
        return
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    mue.train(config, folder, data=data, resume=folder.exists())
    mue.evaluate(folder, data=data)
    print(f"{folder} is trained", flush=True)


def numbers(report: dict[str, Any]) -> dict[str, float]:
    """What is compared between seeds: lower is better."""
    if "mode_tv" in report:
        return {"mode_tv": report["mode_tv"]["mean"], "p95": report["mode_tv"]["p95"]}
    return {"ged": report["ged"]["mean"], "1 - dice_top": 1 - report["dice_top"]["mean"]}


def rows(out: Path) -> list[list[str]]:
    """For each preset and metric: the median and the worst seed."""
    found: list[list[str]] = []
    for folder in sorted(p for p in out.iterdir() if p.is_dir()):
        reports = {
            int(p.parent.name): json.loads(p.read_text()) for p in folder.glob(f"*/{REPORT}")
        }
        values = {seed: numbers(r) for seed, r in sorted(reports.items())}
        for metric in next(iter(values.values()), {}):
            each = {seed: v[metric] for seed, v in values.items()}
            worst = max(each, key=each.__getitem__)
            median = statistics.median(each.values())
            cells = [f"{median:.4f}", f"{each[worst]:.4f}", str(worst), f"{min(each.values()):.4f}"]
            found.append([f"`{folder.name}`", metric, str(len(each)), *cells, commits(folder)])
    return found


def commits(folder: Path) -> str:
    """Where the runs below a folder were trained; `-dirty` with changes that were not committed."""
    known = {str(origin(p.parent)["commit"]) for p in folder.rglob(REPORT)}
    return ", ".join(sorted({c[:7] + "-dirty" * c.endswith("-dirty") for c in known}))


def merged(found: list[list[str]], page: str) -> list[list[str]]:
    """Rows together with those of a page that begin otherwise, in their first two columns."""
    new = {tuple(row[:2]) for row in found}
    before = ([f"`{name}`", *rest] for name, *rest in (row.values() for row in tables(page)))
    kept = [row for row in before if tuple(row[:2]) not in new]
    return sorted(found + kept, key=lambda row: row[0].strip("`"))


def seeded(config: Config, seed: int, device: Device) -> Config:
    """A configuration with another seed and device: the kind that `auto` finds, for the record."""
    kind: Device = "cuda" if choose_device(device).type == "cuda" else "cpu"
    train, compute = replace(config.train, seed=seed), replace(config.compute, device=kind)
    return replace(config, train=train, compute=compute)


def train_all(
    presets: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    data: Path | None,
    jobs: int,
    device: Device = "auto",
) -> None:
    """Train every preset with every seed, so many at once."""
    work: list[tuple[Path, Config, Path | None]] = []
    for name, seed in itertools.product(presets, seeds):
        config = seeded(preset(name), seed, device)
        where = data if config.data.name == "slices" else None
        work.append((out / name / str(seed), config, where))
    run_all(work, jobs)


def run_all(work: Sequence[tuple[Path, Config, Path | None]], jobs: int) -> None:
    """Call `run` with each of these arguments, so many at once; they share the cores."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(run, *arguments) for arguments in work]:
            done.result()


def main() -> None:
    """Train what is asked for, and print the table or put it on its page."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--seeds", type=seeds, default=seeds("0-4"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/seeds"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    asked = parser.parse_args()
    train_all(asked.presets, asked.seeds, asked.out, asked.data, asked.jobs, asked.device)
    found = rows(asked.out)
    print(markdown(COLUMNS, found, left=2))
    if not asked.presets:
        every = merged(found, between(SEEDS, "seeds")[1])
        insert(SEEDS, markdown(COLUMNS, every, left=2), "seeds")
        write_over_seeds()


if __name__ == "__main__":
    main()
