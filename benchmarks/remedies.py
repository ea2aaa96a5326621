"""Train presets over seeds with and without what keeps a training from going wrong.

    python benchmarks/remedies.py [guess-quick toy-vq vector vector-vq] --seeds 0-15 [--jobs 2]

The preset itself is trained into RUNS/seeds/PRESET/SEED, as by benchmarks/seeds.py, its variants
into RUNS/remedies/PRESET/VARIANT/SEED. What is finished is kept: an interrupted command goes on
where it was. The table goes into docs/paper.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mue.config.presets import preset
from mue.config.schema import Config
from mue.training.log import read_log
from pages import ROOT, insert, markdown
from seeds import REPORT, commits, numbers, run_all, seeded, seeds


def without_splitting(config: Config) -> Config:
    """No code is split, and none is retired."""
    return replace(config, codebook=replace(config.codebook, split_every=0))


def without_sharpness(config: Config) -> Config:
    """Responsibilities start by a temperature that decays to 1, in place of the sharpness."""
    return replace(config, objective=replace(config.objective, sharpness=0.0, temperature=20.0))


def without_standardized(config: Config) -> Config:
    """The prior and the posterior read the features as they are."""
    return replace(config, model=replace(config.model, standardize=False))


WITHOUT: dict[str, Callable[[Config], Config]] = {
    "splitting": without_splitting,
    "sharpness": without_sharpness,
    "standardized features": without_standardized,
}
PRESETS: dict[str, tuple[tuple[str, str], tuple[float, float]]] = {
    "guess-quick": (("splitting", "sharpness"), (0.02, 0.04)),
    "toy-vq": (("splitting", "standardized features"), (0.03, 1.0)),
    "vector": (("splitting", "sharpness"), (0.03, 1.0)),
    "vector-vq": (("splitting", "standardized features"), (0.03, 1.0)),
}
"""The remedies of each preset, and what the mean of `mode_tv` and its p95 have to reach."""


def variants(name: str) -> dict[str, Config]:
    """A preset without its remedies, with each of them alone, and with both: as it is."""
    first, second = PRESETS[name][0]
    config = preset(name)
    return {
        "none": WITHOUT[first](WITHOUT[second](config)),
        first: WITHOUT[second](config),
        second: WITHOUT[first](config),
        "both": config,
    }


def folder(runs: Path, name: str, variant: str) -> Path:
    """Where the runs of a variant are."""
    if variant == "both":
        return runs / "seeds" / name
    return runs / "remedies" / name / variant.replace(" ", "-")


def table(runs: Path, wanted: Sequence[int]) -> str:
    """For each variant: how many seeds reach what they have to, the median, the worst, the time.

    The time is the median of the seconds of training, relative to that without remedies.
    """
    lines: list[list[str]] = []
    for name, (_, (mean_at_most, p95_at_most)) in PRESETS.items():
        plain = None
        for variant in variants(name):
            where = folder(runs, name, variant)
            done = [p for seed in wanted if (p := where / str(seed) / REPORT).is_file()]
            found = [numbers(json.loads(p.read_text())) for p in done]
            if not found:
                continue
            took = statistics.median(read_log(p.parent)[-1].seconds for p in done)
            plain = took if variant == "none" else plain
            time = f"{took / plain:.2f}" if plain else ""
            passed = sum(n["mode_tv"] <= mean_at_most and n["p95"] <= p95_at_most for n in found)
            mean, p95 = ([n[metric] for n in found] for metric in ("mode_tv", "p95"))
            cells = [f"{statistics.median(mean):.4f}", f"{max(mean):.4f}", f"{max(p95):.4f}"]
            trained = commits(where)
            count = f"{passed} of {len(found)}"
            lines.append([f"`{name}`", variant, count, *cells, time, trained])
    columns = ["preset", "remedies", "passed", "median", "worst", "worst p95", "time", "commit"]
    return markdown(columns, lines, left=2)


def main() -> None:
    """Train what is missing, and put the table on its page."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("presets", nargs="*", default=[*PRESETS])
    parser.add_argument("--seeds", type=seeds, default=seeds("0-15"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    asked = parser.parse_args()
    work = [
        (
            folder(asked.runs, name, variant) / str(seed),
            seeded(config, seed, asked.device),
            None,
        )
        for name in asked.presets
        for seed in asked.seeds
        for variant, config in variants(name).items()
    ]
    run_all(work, asked.jobs)
    insert(ROOT / "docs" / "paper.md", table(asked.runs, asked.seeds), "remedies")


if __name__ == "__main__":
    main()
