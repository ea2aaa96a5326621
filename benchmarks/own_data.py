"""Own data from files to answers: import, train, evaluate, predict, and two references.

    python benchmarks/own_data.py bsds --out runs/bsds \
        --image 'images/{case}.jpg' --mask 'masks/{case}_r{rater}.png'
    python benchmarks/own_data.py --write runs/bsds-cpu runs/bsds-gpu

Every step is a command of `mue`, printed before it runs. The references are a plain U-Net by the
same settings and the best constant ranking: the same masks, with the same probabilities, for every
image, fitted to the training set. OUT/own_data.json has the numbers of all on the test set. What is
done already is not done again, so that the same command continues after a stop; `--device cuda` is
for a GPU, and other options go to `mue train auto`: `--train.seed 1 --minutes 10`. `--write` puts
the numbers of such folders into docs/own-data.md, where those of another `--device` stay.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import tarfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mue.cli.main import main as mue
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import open_prepared
from mue.metrics.bootstrap import interval
from mue.metrics.energy import distances, ged
from mue.modes import binary_masks, class_masks
from mue.runtime.devices import choose_device, device_name
from mue.types import Case
from pages import ROOT, between, insert, markdown, tables

CANDIDATES = 64
"""Masks of raters of the training set among which those of the constant ranking are chosen."""
LEVELS = 24
"""Thresholds of the mean mask that are candidates as well."""
IMAGES = 512
"""Training images that a constant ranking is fitted to, at most."""
PAGE, NUMBERS = ROOT / "docs" / "own-data.md", "own_data.json"
METRICS = ("ged", "ged_16", "hm_iou_16", "dice_top")


def command(*words: object) -> float:
    """Run a command of `mue`; returns how many seconds it took."""
    arguments = [str(word) for word in words]
    print(f"$ mue {shlex.join(arguments)}", flush=True)
    began = time.monotonic()
    mue(arguments)
    return time.monotonic() - began


class Clock:
    """Seconds of each step, kept in a file: a step that is done is not timed again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}

    def run(self, name: str, done: Path, *words: object) -> None:
        """Run a command unless the file that it ends with is there."""
        if done.exists():
            return
        took = command(*words)
        self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 1)
        self.path.write_text(json.dumps(self.seconds, indent=2) + "\n")


def as_masks(y: Tensor) -> Tensor:
    """The masks of each class but the background."""
    return class_masks(y) if y.shape[2] > 1 else binary_masks(y)


def spread(count: int, total: int) -> list[int]:
    """Indices of at most `count` of `total` items, spread evenly."""
    return torch.linspace(0, total - 1, min(count, total)).long().tolist()


def candidates(source: Slices, size: int = 128) -> Tensor:
    """Answers that may be the same for every image: k c h w."""
    maps: list[Tensor] = []
    for i in spread(IMAGES, len(source)):
        case = source.case(torch.tensor([i]))
        ys, q = case.ys[0].cpu(), case.q[0].cpu()
        maps.append(F.interpolate(ys[q > 0], (size, size), mode="nearest-exact"))
    every = torch.cat(maps)
    mean = torch.stack([m.mean(dim=0) for m in maps]).mean(dim=0)
    foreground = mean.sum(dim=0) - (mean[0] if len(mean) > 1 else 0)
    cuts = foreground.flatten().quantile(torch.linspace(0, 1, LEVELS))
    inside = (foreground >= cuts[:, None, None])[:, None]
    if len(mean) == 1:
        thresholded = inside.float()
    else:
        label = torch.where(inside, mean[1:].argmax(dim=0) + 1, 0)
        thresholded = (label == torch.arange(len(mean))[:, None, None]).float()
    empty = torch.zeros_like(mean)[None]
    if len(mean) > 1:
        empty[:, 0] = 1
    return torch.cat([empty, thresholded, every[spread(CANDIDATES, len(every))]])


def at_size(masks: Tensor, case: Case) -> Tensor:
    """The same answers for each input of a case."""
    resized = F.interpolate(masks, case.ys.shape[-2:], mode="nearest-exact")
    return as_masks(resized[None].to(case.ys.device))


def constant_ranking(train: Slices, masks: Tensor, rounds: int = 3000) -> Tensor:
    """Probabilities of masks that are the same for every image: least mean `ged` in training.

    The energy distance is convex in them, so this is the best choice among these masks.
    """
    attraction, pairwise = torch.zeros(len(masks)), torch.zeros(len(masks), len(masks))
    chosen = spread(IMAGES, len(train))
    for i in chosen:
        case = train.case(torch.tensor([i]))
        d = distances(at_size(masks, case), as_masks(case.ys))
        attraction += (d.sy[0] @ case.q[0]).cpu() / len(chosen)
        pairwise += d.ss[0].cpu() / len(chosen)
    log_p = torch.zeros(len(masks))
    for step in range(rounds):
        p = log_p.softmax(dim=0)
        log_p -= 10 / (1 + step / 100) ** 0.5 * (2 * attraction - 2 * pairwise @ p)
    return log_p.softmax(dim=0)


def constant_ged(test: Slices, masks: Tensor, p: Tensor) -> Tensor:
    """`ged` of a constant ranking for each image."""
    found: list[Tensor] = []
    for i in range(len(test)):
        case = test.case(torch.tensor([i]))
        s, weight = at_size(masks, case), p[None].to(case.q.device)
        found.append(ged(s, weight, as_masks(case.ys), case.q).cpu())
    return torch.cat(found)


def summary(folder: Path) -> dict[str, Any]:
    """What is kept of a model: its metrics, its commit and configuration, and why."""
    report = json.loads((folder / "report-test.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    metrics = {n: {k: report[n][k] for k in ("mean", "low", "high")} for n in METRICS}
    kept = {name: config[name] for name in ("commit", "reasons", "config")}
    return {"metrics": metrics, **kept}


def run(arguments: argparse.Namespace, overrides: Sequence[str]) -> dict[str, Any]:
    """Everything; returns what own_data.json holds."""
    out: Path = arguments.out
    source, prepared = arguments.source, out / "prepared"
    if source.is_file():
        if not (out / "source").exists():
            with tarfile.open(source) as archive:
                archive.extractall(out / "source", filter="data")
        source = out / "source"
    names = ("image", "mask", "patient", "splits")
    given = {f"--{name}": value for name in names if (value := getattr(arguments, name))}
    flags = [word for pair in given.items() for word in pair]
    clock, device = Clock(out / "seconds.json"), ("--device", arguments.device)
    to = ("--out", prepared)
    clock.run("import", prepared, "data", "import", "folder", source, *to, *flags)
    found: dict[str, Any] = {}
    for name, flag in (("ours", ()), ("unet", ("--baseline", "unet"))):
        folder = out / name
        done = folder / "report-test.json"
        train = ["train", "auto", "--data", prepared, "--out", folder, *flag, *overrides]
        train += ["--compute.device", arguments.device]
        train += ["--resume"] if (folder / "config.json").exists() else []
        clock.run(f"train {name}", done, *train)
        clock.run(f"evaluate {name}", done, "evaluate", folder, "--data", prepared, *device)
        found[name] = summary(folder)
    opened = open_prepared(prepared)
    where = choose_device(arguments.device)
    train, test = (Slices(opened, split, device=where) for split in ("train", "test"))
    masks = candidates(train)
    p = constant_ranking(train, masks)
    kept = p > 1e-3
    masks, p = masks[kept], p[kept] / p[kept].sum()
    group = torch.arange(len(test))
    ged = interval(constant_ged(test, masks, p), group, generator=torch.Generator().manual_seed(0))
    found["constant"] = {
        "metrics": {"ged": {"mean": ged.mean, "low": ged.low, "high": ged.high}},
        "masks": len(masks),
    }
    images = [source / row.source for row in test.rows][: arguments.predicted]
    answers = out / "answers"
    clock.run("predict", answers, "predict", out / "ours", *images, "--out", answers, *device)
    return {
        "device": device_name(where),
        "options": ["--device", arguments.device, *overrides],
        "data": opened.digest,
        "images": {s: len(opened.members(s)) for s in ("train", "val", "test")},
        "seconds": clock.seconds,
        "models": found,
    }


def table(runs: Sequence[dict[str, Any]], kept: Sequence[Sequence[str]] = ()) -> str:
    """The metrics of runs on the same data with their intervals, a row for each model."""
    rows: list[Sequence[str]] = [*kept]
    for run in runs:
        for name, title in (("ours", "`train auto`"), ("unet", "U-Net, one answer")):
            model = run["models"][name]
            train = f"{run['seconds'][f'train {name}'] / 60:.1f}"
            steps = f"{model['config']['train']['steps']:,}"
            rows.append([title, run["device"], steps, train, *_cells(model["metrics"])])
    constant = runs[0]["models"]["constant"]["metrics"]
    rows.append(["the best constant ranking", "", "", "", *_cells(constant)])
    columns = ["model", "device", "steps", "minutes", *(f"`{name}`" for name in METRICS)]
    return markdown(columns, rows, left=2)


def _cells(metrics: dict[str, dict[str, float]]) -> list[str]:
    """A mean with its interval for each metric, nothing for one that was not measured."""
    found = [metrics.get(name) for name in METRICS]
    return [f"{m['mean']:.3f} ({m['low']:.3f} to {m['high']:.3f})" if m else "" for m in found]


def write_page(folders: Sequence[Path]) -> None:
    """Put the table of these runs and how to repeat them into docs/own-data.md.

    What the page says of another `--device` than theirs stays.
    """
    runs = [json.loads((folder / NUMBERS).read_text()) for folder in folders]
    before = between(PAGE, "photographs")[1]
    new = {
        option for run in runs for option in re.findall(r"--device \w+", " ".join(run["options"]))
    }
    commands = [" ".join(part.split()) for part in before.split("\n\n") if "--device" in part]
    stay = [text for text in commands if not new & set(re.findall(r"--device \w+", text))]
    devices = {text.partition(": `")[0] for text in stay}
    rows = [list(row.values()) for row in tables(before) if row["device"] in devices]
    kept = [[cells[0].replace("train auto", "`train auto`"), *cells[1:]] for cells in rows]
    counts = runs[0]["images"]
    images = ", ".join(f"{count} images in {split}" for split, count in counts.items())
    made = [f"{images}; in brackets the 95 % interval over test images; `minutes` of training."]
    made += stay
    for run in runs:
        ours = run["models"]["ours"]
        made.append(
            f"{run['device']}: `python benchmarks/own_data.py bsds --out runs/bsds "
            "--image 'images/{case}.jpg' --mask 'masks/{case}_r{rater}.png' "
            f"{shlex.join(run['options'])}`, seed {ours['config']['train']['seed']}, "
            f"commit {ours['commit'][:7]}."
        )
    words = [textwrap.fill(sentence, 115, break_on_hyphens=False) for sentence in made]
    insert(PAGE, "\n\n".join([table(runs, kept), *words]), "photographs")


def main() -> None:
    """Run, and print `ged` of all; or write the page."""
    parser = argparse.ArgumentParser(description="Own data, from files to answers.")
    parser.add_argument("source", type=Path, nargs="?", help="a folder, or a tar archive of one")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--image", help="pattern of the images")
    parser.add_argument("--mask", help="pattern of the masks")
    parser.add_argument("--patient", help="pattern of the patient in the name of a case")
    parser.add_argument("--splits", type=Path, help="table of the splits")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--predicted", type=int, default=8, help="test images that are answered")
    parser.add_argument("--write", type=Path, nargs="+", metavar="OUT", help="only write the page")
    arguments, overrides = parser.parse_known_args()
    if arguments.write:
        write_page(arguments.write)
        return
    if arguments.source is None or arguments.out is None:
        parser.error("name a source and --out, or folders to --write")
    arguments.out.mkdir(parents=True, exist_ok=True)
    content = run(arguments, overrides)
    (arguments.out / NUMBERS).write_text(json.dumps(content, indent=2) + "\n")
    for name, model in content["models"].items():
        print(f"{name:<9} ged {model['metrics']['ged']['mean']:.4f}")


if __name__ == "__main__":
    main()
