"""Train over seeds with and without what keeps a training from going wrong.

    python benchmarks/remedies.py [small guess-quick toy-vq vector vector-vq] --seeds 0-15 --jobs 2

A preset as it is is trained into RUNS/seeds/PRESET/SEED, as by benchmarks/seeds.py, the variants
into RUNS/remedies/NAME/VARIANT/SEED. What is finished is kept: an interrupted command goes on
where it was. The table goes into docs/paper.md, where rows without runs in RUNS stay.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mue.config.presets import PRESETS, preset
from mue.config.schema import Config
from mue.runs.folder import load_config
from mue.runs.log import read_log
from pages import ROOT, between, insert, markdown
from seeds import REPORT, commits, merged, numbers, run_all, seeded, seeds

COLUMNS = ("name", "remedies", "passed", "median", "worst", "worst p95", "time", "commit")


def with_splitting(config: Config, like: Config) -> Config:
    """A code that serves several modes is split with a free one; in the end free ones retire."""
    return replace(config, codebook=replace(config.codebook, split_every=like.codebook.split_every))


def with_sharpness(config: Config, like: Config) -> Config:
    """Responsibilities start with a fixed sharpness, in place of a temperature."""
    sharp = {"sharpness": like.objective.sharpness, "temperature": 1.0}
    return replace(config, objective=replace(config.objective, **sharp))


def with_standardized(config: Config, like: Config) -> Config:
    """The prior, and the posterior of `vq`, read standardized features."""
    return replace(config, model=replace(config.model, standardize=like.model.standardize))


REMEDIES: dict[str, Callable[[Config, Config], Config]] = {
    "splitting": with_splitting,
    "sharpness": with_sharpness,
    "standardized features": with_standardized,
}


def without(config: Config, temperature: float = 20.0) -> Config:
    """A configuration without remedies."""
    soft = {"sharpness": 0.0, "temperature": temperature} if config.objective.sharpness else {}
    return replace(
        config,
        model=replace(config.model, standardize=False),
        codebook=replace(config.codebook, split_every=0),
        objective=replace(config.objective, **soft),
    )


def small() -> Config:
    """`guess-quick` as it once was, with all remedies: fewer steps, a smaller network."""
    config = preset("guess-quick")
    narrow = {"levels": (8, 16, 32), "tail": (64, 64), "widths": (16, 8), "code_level": 4}
    return replace(
        config,
        data=replace(config.data, answers=16),
        model=replace(config.model, **narrow, readout=2, standardize=True),
        codebook=replace(config.codebook, size=6),
        objective=replace(config.objective, reconstruction=0.05, balance_until=0.12),
        train=replace(config.train, steps=1000, batch=64, lr=3e-3, warmup=0),
    )


def split_vectors() -> Config:
    """`vector-vq` with splitting, which it does without."""
    config = preset("vector-vq")
    every = preset("toy-vq").codebook.split_every
    return replace(config, codebook=replace(config.codebook, split_every=every))


@dataclass(frozen=True, slots=True)
class Ablation:
    """A configuration without and with all remedies to try, and what `mode_tv` has to be."""

    none: Config
    every: Config
    mean: float
    p95: float

    def remedies(self) -> list[str]:
        """What the two differ by."""
        return [name for name, add in REMEDIES.items() if add(self.none, self.every) != self.none]


ABLATIONS = {
    "small": Ablation(without(small(), temperature=5.0), small(), 0.02, 0.04),
    **{
        name: Ablation(without(config), config, *bar)
        for name, config, bar in (
            ("guess-quick", preset("guess-quick"), (0.02, 0.04)),
            ("toy-vq", preset("toy-vq"), (0.03, 1.0)),
            ("vector", preset("vector"), (0.03, 1.0)),
            ("vector-vq", split_vectors(), (0.03, 1.0)),
        )
    },
}


def variants(name: str) -> dict[str, Config]:
    """A configuration without remedies, with each of them alone, with two of them, with all."""
    found = ABLATIONS[name]
    remedies, configs = found.remedies(), dict[str, Config]()
    for count in range(len(remedies) + 1):
        for chosen in itertools.combinations(remedies, count):
            config = found.none
            for remedy in chosen:
                config = REMEDIES[remedy](config, found.every)
            configs[" + ".join(chosen) or "none"] = config
    return configs


def folder(runs: Path, name: str, variant: str) -> Path:
    """Where the runs of a variant are: those of a preset itself are shared with seeds.py."""
    if name in PRESETS and variants(name)[variant] == preset(name):
        return runs / "seeds" / name
    return runs / "remedies" / name / variant.replace(" + ", "+").replace(" ", "-")


def rows(runs: Path, wanted: Sequence[int]) -> list[list[str]]:
    """For each variant: how many seeds reach what they have to, the median, the worst, the time.

    The time is the median of the seconds of training, relative to that without remedies; it is
    left out where not all of these runs were trained on one known kind of device.
    """
    lines: list[list[str]] = []
    for name, ablation in ABLATIONS.items():
        plain: dict[frozenset[str], float] = {}
        for variant in variants(name):
            where = folder(runs, name, variant)
            done = [p for seed in wanted if (p := where / str(seed) / REPORT).is_file()]
            found = [numbers(json.loads(p.read_text())) for p in done]
            if not found:
                continue
            took = statistics.median(read_log(p.parent)[-1].seconds for p in done)
            devices = frozenset(load_config(p.parent).compute.device for p in done)
            if variant == "none" and devices in ({"cpu"}, {"cuda"}):
                plain[devices] = took
            time = f"{took / plain[devices]:.2f}" if devices in plain else ""
            mean, p95 = ([n[metric] for n in found] for metric in ("mode_tv", "p95"))
            passed = sum(
                m <= ablation.mean and p <= ablation.p95 for m, p in zip(mean, p95, strict=True)
            )
            cells = [f"{statistics.median(mean):.4f}", f"{max(mean):.4f}", f"{max(p95):.4f}"]
            trained = commits(where)
            count = f"{passed} of {len(found)}"
            lines.append([f"`{name}`", variant, count, *cells, time, trained])
    return lines


def main() -> None:
    """Train what is missing, and put the table on its page."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("names", nargs="*", default=[*ABLATIONS])
    parser.add_argument("--variants", nargs="*", help="such as 'splitting + sharpness'; else all")
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
        for name in asked.names
        for seed in asked.seeds
        for variant, config in variants(name).items()
        if asked.variants is None or variant in asked.variants
    ]
    run_all(work, asked.jobs)
    page = ROOT / "docs" / "paper.md"
    order = [f"`{name}`{variant}" for name in ABLATIONS for variant in variants(name)]
    every = merged(rows(asked.runs, asked.seeds), between(page, "remedies")[1])
    every.sort(key=lambda row: order.index(row[0] + row[1]))
    insert(page, markdown(COLUMNS, every, left=2), "remedies")


if __name__ == "__main__":
    main()
