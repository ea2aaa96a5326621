"""Whether what is fast learns the same: loss curves of naive float32 and of ours.

    python benchmarks/curves.py [--preset guess] [--steps 1000] [--seeds 3] [--out runs/curves]

Trains a preset with some seeds, naively and as `mue train` would, on the same data, and plots the
terms of the objective. The band of each way is the range over its seeds: where the bands overlap,
the difference is no larger than that of another seed. Writes curves.json after each training and
curves.png at the end; trainings that curves.json already holds are not done again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import torch

from mue.config.presets import preset
from mue.config.schema import Config
from mue.data.build import build_source
from mue.kernels import accelerate
from mue.plots.style import save_figure
from mue.runs.folder import commit
from mue.runtime.atomic import write_atomic
from mue.runtime.devices import choose_device, device_name
from mue.training.loop import fit
from mue.training.measure import measure
from mue.training.state import Training
from timing.plots import plot_curves
from timing.setups import naive, ours


def compiled(config: Config) -> Config:
    """Ours as in a long training: compiled on a GPU, however short this one is."""
    fast = ours(config)
    wish = "on" if fast.compute.device == "cuda" else "auto"
    return dataclasses.replace(fast, compute=dataclasses.replace(fast.compute, compile=wish))


WAYS = {"naive float32": naive, "ours": compiled}
TERMS = ("reconstruction", "prior", "commitment")
CURVES = "curves.json"


def curve(config: Config, device: torch.device, points: int) -> dict[str, list[float]]:
    """The terms along a training, each a mean over the steps since the last point."""
    source = build_source(config.data, "train", seed=config.train.seed, device=device)
    found: dict[str, list[float]] = {name: [] for name in ("step", *TERMS)}
    every = max(1, config.train.steps // points)
    sums = torch.zeros(len(TERMS), device=device)
    for step in fit(accelerate(Training(config, device)), source):
        items = step.terms.by_name()
        sums += torch.stack([items[name] for name in TERMS])
        if step.number % every == 0:
            measure(step, 0.0)  # it refuses a loss that is not finite
            found["step"].append(step.number)
            for name, value in zip(TERMS, (sums / every).tolist(), strict=True):
                found[name].append(value)
            sums.zero_()
    return found


def main() -> None:
    """Train, write and plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="guess")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/curves"))
    arguments = parser.parse_args()
    device = choose_device()
    about = {
        "preset": arguments.preset,
        "command": f"python benchmarks/curves.py --preset {arguments.preset} "
        f"--steps {arguments.steps} --seeds {arguments.seeds}",
        "device": device_name(device),
        "torch": torch.__version__,
        "commit": commit(),
    }
    path = arguments.out / CURVES
    content: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    if content.get("about") != about:
        content = {"about": about, "curves": {name: [] for name in WAYS}}
    for seed in range(arguments.seeds):
        config = preset(arguments.preset)
        train = dataclasses.replace(config.train, seed=seed, steps=arguments.steps)
        compute = dataclasses.replace(config.compute, device=device.type)
        config = dataclasses.replace(config, train=train, compute=compute)
        for name, way in WAYS.items():
            if len(content["curves"][name]) > seed:
                continue
            began = time.monotonic()
            content["curves"][name].append(curve(way(config), device, 50))
            write_atomic(path, (json.dumps(content) + "\n").encode())
            print(f"{name}, seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
    title = f"{arguments.preset}, {device_name(device)}"
    save_figure(plot_curves(content["curves"], TERMS, title), arguments.out / "curves.png")


if __name__ == "__main__":
    main()
