"""Measure what docs/results.md reports of the guessing game, and write it there.

    make results

Bundled models are evaluated. Models that train on a CPU in minutes are trained first, into
`runs/results`; delete that folder to train them anew.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import mue
from mue.cli.main import main as cli
from mue.commands.demo import DEMO
from mue.inference.load import find
from mue.runs.folder import commit, load_config
from mue.runs.log import read_log
from pages import RESULTS, ROOT, insert, markdown


@dataclass(frozen=True)
class Row:
    """A model that is reported, and the command that trains it."""

    name: str
    model: str | Path
    command: str
    seconds: float | None = None


def trained(preset: str, seed: int, *options: str) -> Row:
    """A preset trained here by the command line, or found trained."""
    name = "-".join([preset, str(seed), *(o.strip("-") for o in options)])
    folder = ROOT / "runs" / "results" / name
    words = ["train", preset, "--seed", str(seed), *options]
    if not (folder / "figures" / "history.png").exists():
        cli([*words, "--out", str(folder), "--resume"])
    seconds = read_log(folder)[-1].seconds
    label = f"`{' '.join([preset, *options])}`, seed {seed}"
    return Row(label, folder, f"mue {' '.join(words)} --out runs/{preset}-{seed}", seconds)


def measure(row: Row) -> dict[str, Any]:
    """Its report on 1,000 test inputs, seed 0."""
    return mue.evaluate(row.model, inputs=1000, seed=0, device="cpu").report


def table(rows: list[Row], reports: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    columns = ["model", "method", "mode_tv mean", "95th percentile", "mode_mae mean"]
    lines: list[list[str]] = []
    for row, content in zip(rows, reports, strict=True):
        tv, mae = content["mode_tv"], content["mode_mae"]
        numbers = (tv["mean"], tv["p95"], mae["mean"])
        cells = [row.name, f"`{content['method']}`", *(f"{value:.4f}" for value in numbers)]
        lines.append([*cells, str(content["codes_in_use"])])
    return markdown([*columns, "codes in use"], lines, left=2)


def details(row: Row, content: dict[str, Any]) -> str:
    """One model: its command, what it was made with, and its probabilities."""
    made = content["trained_with"]
    seed = load_config(find(row.model)).train.seed
    took = f", {row.seconds:.0f} s of training on this machine" if row.seconds else ""
    about = f"Seed {seed}, version {made['version']}, commit {made['commit']}{took}."
    columns = ["category", "mode", "true", "predicted", "deviation over inputs"]
    lines = (
        [r["group"], str(r["mode"]), *(f"{r[c]:.3f}" for c in ("true", "predicted", "deviation"))]
        for r in content["table"]
    )
    return "\n\n".join([f"## {row.name}", f"    {row.command}", about, markdown(columns, lines)])


def main() -> None:
    """Evaluate, plot, write."""
    torch.set_num_threads(os.cpu_count() or 1)
    rows = [
        Row("`guess` (bundled)", "guess", "mue train guess --out runs/guess"),
        Row(
            "`guess-exact` (bundled)",
            "guess-exact",
            "mue train guess-exact --out runs/guess-exact",
        ),
        *(trained("guess-quick", seed) for seed in (0, 1, 2)),
        trained("guess-quick", 0, "--data.answers", "1"),
        trained("vector", 0),
    ]
    reports = [measure(row) for row in rows]
    (ROOT / "runs" / "results" / "report.json").write_text(json.dumps(reports, indent=2))
    stamp = (
        f"Measured by `make results` at commit {commit()} with torch {torch.__version__} on a "
        f"{os.cpu_count()}-core {platform.machine()} CPU: 1,000 test inputs, seed 0, 16 answers."
    )
    summary = f"{table(rows, reports)}\n\n{stamp}"
    everything = "\n\n".join([summary, *map(details, rows, reports)])
    insert(RESULTS, everything, "results")
    for model in DEMO:
        mue.figure(model, out=ROOT / "docs" / "figures" / model, device="cpu")
    for name, row in (("guess-quick", rows[2]), ("vector", rows[-1])):
        plotted = mue.figure(row.model, out=ROOT / "docs" / "figures" / name, device="cpu")
        print(*plotted.files, sep="\n")
    print(summary)


if __name__ == "__main__":
    main()
