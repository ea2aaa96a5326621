"""Write docs/performance.md from what `make bench` measured.

    make results-performance BENCH="runs/bench-cpu runs/bench-h200"

Each folder holds a `bench.json`, and a `profile.json` where `--profile` was asked for. One that
`benchmarks/curves.py` wrote may stand among them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from curves import CURVES, TERMS
from mue.plots.style import save_figure
from pages import ROOT, insert, markdown
from speed import BENCH, PROFILE, cost_figures
from timing.plots import plot_curves

TOP = 12  # operators shown of a profile
COUNTED = ("GB", "GFLOP", "floor, ms", "share")


def timing(row: dict[str, Any], name: str) -> str:
    """A time with its spread."""
    found = row.get(name)
    return f"{found['ms']:.2f} ± {found['spread']:.0%}" if found else ""


def counted(row: dict[str, Any]) -> list[str]:
    """What was counted, and how near the floor the time is."""
    return [
        f"{row['bytes'] / 1e9:.3f}",
        f"{row['operations'] / 1e9:.2f}",
        f"{row['floor_ms']:.3f}",
        f"{row['share']:.0%}",
    ]


def training(rows: list[dict[str, Any]]) -> str:
    """Steps of training."""
    columns = [
        "training",
        "batch",
        "naive, ms",
        "ours, ms",
        "ratio",
        "at most",
        "steps/s",
        *COUNTED,
    ]
    return markdown(
        columns,
        (
            [
                f"`{r['preset']}`, {r['precision']}",
                str(r["batch"]),
                timing(r, "naive"),
                timing(r, "ours"),
                f"**{r['ratio']:.2f}**",
                f"{r['naive']['ms'] / r['floor_ms']:.2f}",
                f"{1e3 / r['ours']['ms']:.1f}",
                *counted(r),
            ]
            for r in rows
        ),
    )


def answering(rows: list[dict[str, Any]]) -> str:
    """Answers to one image."""
    columns = ["answers", "k", "naive, ms", "ours, ms", "ratio", "one by one, channels_last, ms"]
    return markdown(
        [*columns, "of U-Net", *COUNTED],
        (
            [
                f"`{r['preset']}`, {r['side']}²",
                str(r["k"]),
                timing(r, "naive"),
                timing(r, "ours"),
                f"**{r['ratio']:.2f}**",
                timing(r, "one_by_one"),
                f"{r['of_unet']:.2f}",
                *counted(r),
            ]
            for r in rows
        ),
    )


def sides(rows: list[dict[str, Any]], growth: dict[str, dict[str, float]]) -> str:
    """Costs over pixels, and the powers with which costs grow."""
    every = sorted({r["side"] for r in rows})
    lines: list[list[str]] = []
    for name in dict.fromkeys(r["preset"] for r in rows):
        by_side = {r["side"]: r for r in rows if r["preset"] == name}
        cells = [f"{by_side[s]['ours']['ms']:.2f}" if s in by_side else "" for s in every]
        powers = [
            f"{growth[of][name]:.2f}" if name in growth[of] else "" for of in ("pixels", "answers")
        ]
        k = next(iter(by_side.values()))["k"]
        lines.append([f"`{name}`, {k} answers", *cells, *powers])
    grow = ["power of pixels", "power of k, up to 16"]
    return markdown(["ours, ms", *(f"{side}²" for side in every), *grow], lines)


def profile(name: str, found: dict[str, Any]) -> list[str]:
    """The slowest operators and kernels of a step."""
    parts: list[str] = []
    for kind in ("operators", "kernels"):
        if rows := found[kind]:
            lines = (
                [
                    f"`{r['name'][:80]}`",
                    r["shapes"],
                    f"{r['calls']:g}",
                    f"{r['ms']:.3f}",
                ]
                for r in rows[:TOP]
            )
            columns = [kind, "inputs", "calls", "ms"]
            parts += [f"The slowest {kind} of a step of `{name}`:", markdown(columns, lines, 2)]
    return parts


def section(folder: Path, target: Path) -> str:
    """All that was measured on one device, with its figures."""
    content = json.loads((folder / BENCH).read_text())
    limits = content["limits"]
    peaks = ", ".join(f"{v['peak'] / 1e12:.3g} TFLOP/s in {kind}" for kind, v in limits.items())
    bandwidth = max(v["bandwidth"] for v in limits.values())
    commit = content["commit"][:12]
    made = f"seed {content['seed']}, version {content['version']}, commit {commit}"
    command = content["command"] + (" --profile" if (folder / PROFILE).is_file() else "")
    where = f"torch {content['torch']}, threads {content['threads']}"
    parts = [
        f"## {content['name']}",
        f"    {command} --device {content['device']} --seed {content['seed']}",
        f"Measured with {made}, {where}. Limits: {bandwidth / 1e9:.4g} GB/s, {peaks}.",
    ]
    if "training" in content:
        ways = "; ".join(f"{name}: {words}" for name, words in content["setups"].items())
        parts += [training(content["training"]), f"How it computes: {ways}."]
    if "answering" in content:
        parts += [answering(content["answering"]), sides(content["sides"], content["growth"])]
        for name, figure in cost_figures(content).items():
            path = save_figure(figure, target / f"{content['device']}-{name}.png")
            parts.append(f"![Cost over {name}](figures/performance/{path.name})")
    if (folder / PROFILE).is_file():
        found = json.loads((folder / PROFILE).read_text())["profile"]
        parts += [part for name, rows in found.items() for part in profile(name, rows)]
    return "\n\n".join(parts)


def ending(curves: dict[str, list[dict[str, list[float]]]], part: int = 6) -> str:
    """Where each way ends: what its seeds reconstruct with, over the last part of the steps."""
    parts: list[str] = []
    for way, runs in curves.items():
        lasts = [run["reconstruction"][-max(1, len(run["step"]) // part) :] for run in runs]
        means = sorted(sum(last) / len(last) for last in lasts)
        parts.append(f"{means[0]:.3f} to {means[-1]:.3f} ({way})")
    return f"Over the last of {part} parts the reconstruction is {', '.join(parts)}."


def learning(folder: Path, target: Path) -> str:
    """Whether what is fast learns the same."""
    content = json.loads((folder / CURVES).read_text())
    about, curves = content["about"], content["curves"]
    title = f"{about['preset']}, {about['device']}"
    path = save_figure(plot_curves(curves, TERMS, title), target / "curves.png")
    what = (
        f"On {about['device']}, torch {about['torch']}, commit {about['commit'][:12]}: the terms "
        "of the objective in naive float32 and in ours, with the same seeds and the same data. A "
        "band is what the seeds of one way span. Peaks are codes that come into use, at another "
        f"step with another seed. {ending(curves)}"
    )
    plot = f"![Loss curves](figures/performance/{path.name})"
    return "\n\n".join(["## Does it learn the same?", f"    {about['command']}", what, plot])


def main() -> None:
    """Read, plot, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    options = parser.parse_args()
    target = ROOT / "docs" / "figures" / "performance"
    page = "\n\n".join(
        (learning if (folder / CURVES).is_file() else section)(folder, target)
        for folder in options.folders
    )
    insert(ROOT / "docs" / "performance.md", page, "performance")
    print(page)


if __name__ == "__main__":
    main()
