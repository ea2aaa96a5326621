"""Whether what is fast learns the same: loss curves of naive float32 and of ours.

    python benchmarks/curves.py [--preset guess] [--steps 2000] [--seeds 3] [--out runs/curves]

Trains a preset with some seeds, naively and as `mue train` would, on the same data, and draws the
terms of the objective. The band of each way is what its seeds span: where the bands lie on each
other, the difference is that of another seed. Writes curves.json and curves.png.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

import matplotlib as mpl
import torch

from mue.bench.setups import naive, ours
from mue.config import Config, preset
from mue.data.build import build_source
from mue.predict import choose_device
from mue.train import Training, fit, measure

TERMS = ("reconstruction", "prior", "commitment")


def curve(config: Config, device: torch.device, every: int) -> dict[str, list[float]]:
    """The terms along a training."""
    source = build_source(config.data, "train", seed=config.train.seed, device=device)
    found: dict[str, list[float]] = {name: [] for name in ("step", *TERMS)}
    for step in fit(Training(config, device), source):
        if step.number % every == 0:
            record = measure(step, 0.0)
            for name in found:
                found[name].append(getattr(record, name))
    return found


def draw(content: dict[str, list[dict[str, list[float]]]], title: str, path: Path) -> None:
    """A panel for each term, a band for each way."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(TERMS), figsize=(12, 4), layout="constrained")
    for panel, term in zip(panels, TERMS, strict=True):
        lowest = min(min(c[term]) for curves in content.values() for c in curves)
        for (way, curves), colour in zip(content.items(), ("tab:blue", "tab:red"), strict=True):
            values = torch.tensor([c[term] for c in curves])
            steps = curves[0]["step"]
            panel.fill_between(
                steps, values.amin(0), values.amax(0), color=colour, alpha=0.25, linewidth=0
            )
            panel.plot(steps, values.mean(0), color=colour, label=way)
        panel.set(title=term, xlabel="step", yscale="log" if lowest > 0 else "linear")
    panels[0].legend(frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train, write and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="guess")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/curves"))
    arguments = parser.parse_args()
    device = choose_device()
    content: dict[str, list[dict[str, list[float]]]] = {"naive float32": [], "ours": []}
    for seed in range(arguments.seeds):
        config = preset(arguments.preset)
        train = dataclasses.replace(config.train, seed=seed, steps=arguments.steps)
        compute = dataclasses.replace(config.compute, device=device.type)
        config = dataclasses.replace(config, train=train, compute=compute)
        for name, way in (("naive float32", naive), ("ours", ours)):
            began = time.monotonic()
            content[name].append(curve(way(config), device, max(1, arguments.steps // 50)))
            print(f"{name}, seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "curves.json").write_text(json.dumps(content) + "\n")
    title = f"{arguments.preset} on {device.type}: {arguments.seeds} seeds each"
    draw(content, title, arguments.out / "curves.png")


if __name__ == "__main__":
    main()
