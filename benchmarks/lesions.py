"""Measure what docs/results.md and README.md report of lesions, and write it there.

    make results-lidc DATA=lidc [RUNS=runs/lidc]

DATA is LIDC-IDRI as `mue data import lidc` prepared it. Bundled models are evaluated, and so are
the models in the folder RUNS that are too large to be bundled. Reports are kept in RUNS: a model
whose weights and data are those of its report is not evaluated again.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import mue
from mue.data.prepared.open import open_prepared
from mue.inference.load import find
from mue.metrics.calibration import reliability
from mue.plots.history import plot_history
from mue.plots.reliability import plot_reliability
from mue.plots.spread import plot_spread
from mue.plots.style import save_figure
from mue.runs.folder import commit, load_config, origin
from mue.runs.log import LOG, LogRecord, read_log, read_validations
from mue.runs.weights import weights_digest
from pages import RESULTS, ROOT, insert, markdown, write_headline

METRICS = ("ged", "ged_16", "hm_iou_16", "dice_top", "coverage_1", "coverage_2", "n90")
MORE = ("ged", "rest", "ged_16", "ged_32", "ged_50", "ged_100", "hm_iou_16", "dice_top")
MORE += ("coverage_1", "coverage_2", "coverage_3", "n90", "in_no_mode")


@dataclass(frozen=True)
class Row:
    """A model that is reported, and the commands that made it."""

    name: str
    model: str | Path
    commands: tuple[str, ...]


def rows(runs: Path) -> list[Row]:
    """The models that are at hand."""
    exact = "mue train lidc-exact --data lidc --train.no-calibrate --out runs/lidc-exact-raw"
    found = [
        Row(
            "`lidc-exact` (bundled)",
            "lidc-exact",
            (exact, "mue calibrate runs/lidc-exact-raw runs/lidc-exact --data lidc"),
        ),
        Row("`lidc-exact`, not calibrated", runs / "lidc-exact-raw", (exact,)),
        Row(
            "`lidc` (the paper's width)",
            runs / "lidc",
            ("mue train lidc --data lidc --out runs/lidc",),
        ),
        Row(
            "`lidc-small` (bundled)",
            "lidc-small",
            ("mue train lidc-small --data lidc --out runs/lidc-small",),
        ),
    ]
    return [r for r in found if isinstance(r.model, str) or r.model.is_dir()]


def measure(row: Row, data: Path, runs: Path) -> tuple[dict[str, Any], Path]:
    """Its report on the test patients, and its table of slices."""
    folder = runs / Path(row.model).name
    path, table = folder / "report-test.json", folder / "slices-test.csv"
    if path.is_file():
        content = json.loads(path.read_text())
        asked = ("test", open_prepared(data).digest, weights_digest(find(row.model)))
        if tuple(content.get(name) for name in ("split", "data", "weights")) == asked:
            made = {"trained_with": origin(find(row.model))}
            return content | made, table
    print(f"evaluating {row.name}")
    return mue.evaluate(row.model, data=data, out=folder).report, table


def number(value: dict[str, float]) -> str:
    """A mean with its interval."""
    return f"{value['mean']:.3f} ({value['low']:.3f} to {value['high']:.3f})"


def table(found: list[tuple[Row, dict[str, Any]]]) -> str:
    """The results as Markdown."""
    lines: list[list[str]] = []
    for row, content in found:
        cells = [number(content[m]) if m == "ged" else f"{content[m]['mean']:.3f}" for m in METRICS]
        ece = [f"{content[kind]['ece']['mean']:.3f}" for kind in ("mode", "presence")]
        more = [*ece, str(content["codes_in_use"]), str(content["passes"])]
        lines.append([row.name, f"`{content['method']}`", *cells, *more])
    columns = ["model", "method", *METRICS, "mode ECE", "presence ECE", "codes", "passes"]
    return markdown(columns, lines, left=2)


def details(row: Row, content: dict[str, Any]) -> str:
    """One model: its commands, what it was made with, and every metric."""
    made, config = content["trained_with"], load_config(find(row.model))
    log = find(row.model) / LOG
    took = f", {read_log(log.parent)[-1].seconds:.0f} s" if log.is_file() else ""
    size = f"{config.train.steps:,} steps of {config.train.batch} slices{took}"
    about = f"Seed {config.train.seed}, {size}; version {made['version']}, commit {made['commit']}."
    values = {m: content[m] for m in MORE}
    for kind in ("mode", "presence"):
        values |= {f"{kind} {k}": content[kind][k] for k in ("brier", "ece")}
    lines: list[list[str]] = []
    for name, v in values.items():
        spread = f"{v['std']:.4f}" if "std" in v else ""
        lines.append([name, f"{v['mean']:.4f}", f"{v['low']:.4f} to {v['high']:.4f}", spread])
    columns = ["metric", "mean", "95 % interval over patients", "deviation over slices"]
    commands = "\n".join(f"    {command}" for command in row.commands)
    return "\n\n".join([f"## {row.name}", commands, about, markdown(columns, lines)])


def column(path: Path, name: str) -> torch.Tensor:
    """A column of a table of slices."""
    with path.open(newline="") as file:
        return torch.tensor([float(line[name]) for line in csv.DictReader(file)])


def main() -> None:
    """Evaluate, plot, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "lidc")
    options = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    found: list[tuple[Row, dict[str, Any]]] = []
    slices: dict[str, Path] = {}
    for row in rows(options.runs):
        content, path = measure(row, options.data, options.runs)
        found.append((row, content))
        slices[row.name.replace("`", "")] = path
    first = found[0][1]
    stamp = (
        f"Measured by `make results-lidc DATA=lidc` at commit {commit()} with torch "
        f"{torch.__version__} on a {os.cpu_count()}-core {platform.machine()} CPU: "
        f"{first['slices']:,} test slices of {first['patients']} patients, samples with seed 0. "
        "In brackets: 95 % bootstrap interval over patients."
    )
    summary = f"{table(found)}\n\n{stamp}"
    everything = "\n\n".join([summary, *(details(*f) for f in found)])
    insert(RESULTS, everything, "lidc")
    write_headline()
    target = ROOT / "docs" / "figures" / "lidc"
    about = f"{first['slices']:,} test slices"
    spread = {name: column(path, "ged") for name, path in slices.items()}
    curves = {
        name: reliability(column(path, "presence").clamp(0, 1), column(path, "annotated"))
        for name, path in slices.items()
    }
    save_figure(plot_spread(spread, f"energy distance (GED), {about}"), target / "spread.png")
    save_figure(
        plot_reliability(curves, f"presence of a lesion, {about}"), target / "reliability.png"
    )
    plotted: list[list[LogRecord]] = []  # a calibrated model has the history of its original
    for row, _ in found:
        folder, name = find(row.model), Path(row.model).name
        history = read_log(folder)
        if history and history not in plotted:
            plotted.append(history)
            figure = plot_history(history, name, read_validations(folder))
            save_figure(figure, target / f"history-{name}.png")
    print(summary)


if __name__ == "__main__":
    main()
