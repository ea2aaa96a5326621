"""Train `guess-quick` over seeds with and without what keeps a training from going wrong.

    python benchmarks/remedies.py --seeds 0-23 [--jobs 2] [--device cuda]

Each variant and seed is trained into OUT/VARIANT/SEED and evaluated there; what is finished is
kept, as by benchmarks/seeds.py. The table goes into docs/paper.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

from mue.config.presets import preset
from mue.config.schema import Config
from pages import ROOT, insert, markdown
from seeds import REPORT, commits, numbers, run_all, seeds

MEAN, P95 = 0.02, 0.04
"""What a run has to reach."""
VARIANTS = {
    "none": (),
    "splitting": ("split",),
    "sharpness": ("sharp",),
    "both": ("split", "sharp"),
    "both, and standardized features": ("split", "sharp", "standardize"),
}


def variant(remedies: tuple[str, ...], seed: int, device: str) -> Config:
    """`guess-quick` with some of its remedies."""
    config = preset("guess-quick")
    if "split" not in remedies:
        config = replace(config, codebook=replace(config.codebook, split_every=0))
    if "sharp" not in remedies:
        soft = replace(config.objective, sharpness=0.0, temperature=20.0)
        config = replace(config, objective=soft)
    if "standardize" in remedies:
        config = replace(config, model=replace(config.model, standardize=True))
    compute = replace(config.compute, device=device, bfloat16="off")
    return replace(config, train=replace(config.train, seed=seed), compute=compute)


def folder_of(name: str) -> str:
    """Where the runs of a variant are."""
    return name.replace(",", "").replace(" ", "-")


def table(out: Path) -> str:
    """For each variant: how many seeds reach both numbers, the median and the worst."""
    lines: list[list[str]] = []
    for name in VARIANTS:
        folder = out / folder_of(name)
        reports = [json.loads(p.read_text()) for p in sorted(folder.glob(f"*/{REPORT}"))]
        found = [numbers(report) for report in reports]
        if not found:
            continue
        passed = sum(n["mode_tv"] <= MEAN and n["p95"] <= P95 for n in found)
        mean, p95 = ([n[metric] for n in found] for metric in ("mode_tv", "p95"))
        cells = [f"{statistics.median(mean):.4f}", f"{max(mean):.4f}", f"{max(p95):.4f}"]
        lines.append([name, f"{passed} of {len(found)}", *cells])
    columns = ["remedies", f"mean ≤ {MEAN:g}, p95 ≤ {P95:g}", "median", "worst", "worst p95"]
    return markdown(columns, lines)


def main() -> None:
    """Train what is missing, and put the table on its page."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--seeds", type=seeds, default=seeds("0-23"))
    parser.add_argument("--out", type=Path, default=Path("runs/remedies"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    asked = parser.parse_args()
    work = [
        (
            asked.out / folder_of(name) / str(seed),
            variant(remedies, seed, asked.device),
            None,
        )
        for seed in asked.seeds
        for name, remedies in VARIANTS.items()
    ]
    run_all(work, asked.jobs)
    text = f"{table(asked.out)}\n\nTrained at commit {commits(asked.out)}."
    insert(ROOT / "docs" / "paper.md", text, "remedies")


if __name__ == "__main__":
    main()
