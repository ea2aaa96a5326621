"""Compare ours with the baselines, and write it to docs/comparison.md and README.md.

    make results-compare [DATA=lidc] [RUNS=runs]

DATA is LIDC-IDRI as `mue data import lidc` prepared it; without it the guessing game alone is
compared. Bundled models take part, and so do the baselines in the folder RUNS that are not
bundled, under the names of their presets: RUNS/guess-unet, RUNS/lidc-ensemble, ...

A comparison takes minutes to an hour, so it is kept: RUNS/compare-guess/comparison.json and
RUNS/compare-lidc/comparison.json. One that is there is taken as it is where models, digests of
their weights and of the data, seed and numbers of samples are those of the commands on the page;
it may come from `mue compare ... --out RUNS/compare-lidc` on another machine. Delete it to compare
anew.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import mue
from mue.config.presets import preset
from mue.data.prepared.open import open_prepared
from mue.data.synthetic.guess import CATEGORIES
from mue.evaluation.compare import SAMPLE_COUNTS, ComparedModel, best, higher_is_better
from mue.evaluation.curves import Point
from mue.inference.load import bundled, find
from mue.metrics.bootstrap import Interval
from mue.plots.comparison import plot_comparison
from mue.plots.sample_curve import plot_sample_curve
from mue.plots.style import save_figure
from mue.runs.folder import load_config, origin
from mue.runs.weights import weights_digest
from pages import COMPARISON, ROOT, TRAINED_ON, insert, markdown, write_headline

INPUTS, SEED = 1000, 0
FIGURES = ROOT / "docs" / "figures"
LESIONS = "## Lesions\n\n![every metric of every model](figures/compare/lidc.png)"
BASELINES = ("probunet", "unet", "dropout", "ensemble", "mheads")


@dataclass(frozen=True)
class Task:
    """Models that answer the same question.

    Attributes:
        name: Of the game or the data, as presets are called by it.
        models: Each by its name: a bundled one, or a folder.
        samples: Numbers of samples of a model that samples.
        data: Prepared slices, or None for the game.
    """

    name: str
    models: dict[str, str | Path]
    samples: tuple[int, ...]
    data: Path | None = None

    @property
    def command(self) -> str:
        """What to type for the same comparison."""
        models = (n if isinstance(m, str) else f"runs/{n}" for n, m in self.models.items())
        words = ["mue compare", *models]
        if self.data is not None:
            words += ["--data lidc", f"--samples {' '.join(map(str, self.samples))}"]
        return " ".join([*words, f"--out runs/compare-{self.name}"])


@dataclass(frozen=True)
class Outcome:
    """What a comparison found."""

    task: Task
    content: dict[str, Any]
    models: list[ComparedModel]

    def of(self, model: str) -> list[ComparedModel]:
        """Each row of a model."""
        return [m for m in self.models if m.model == model]


def tasks(runs: Path, data: Path | None) -> list[Task]:
    """The comparisons that can be made, of the models that are at hand."""

    def known(*names: str) -> dict[str, str | Path]:
        places = {n: n if n in bundled() else runs / n for n in names}
        return {n: m for n, m in places.items() if isinstance(m, str) or m.is_dir()}

    game = known("guess", "guess-exact", *(f"guess-{b}" for b in BASELINES))
    found = [Task("guess", game, SAMPLE_COUNTS)]
    if data is not None:
        lesions = known("lidc-exact", "lidc-small", *(f"lidc-{b}" for b in BASELINES))
        found.append(Task("lidc", lesions, (16, 100), data))
    return found


def outcome(task: Task, runs: Path) -> Outcome:
    """The comparison that is kept, or a new one where there is none of just these models."""
    folder = runs / f"compare-{task.name}"
    path = folder / "comparison.json"
    asked: dict[str, Any] = {
        "seed": SEED,
        "weights": {n: weights_digest(find(m)) for n, m in task.models.items()},
    }
    if task.data is None:
        asked["inputs"] = INPUTS
    else:
        asked |= {"data": open_prepared(task.data).digest, "split": "test"}
    content: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    samples = {r["samples"] for r in content.get("models", []) if r["samples"]}
    if samples != set(task.samples) or any(content.get(k) != v for k, v in asked.items()):
        print(task.command)
        path.unlink(missing_ok=True)  # of other models or data
        content = mue.compare(
            list(task.models.values()),
            data=task.data,
            inputs=INPUTS,
            seed=SEED,
            samples=task.samples,
            out=folder,
        ).report
    return Outcome(task, content, [compared_model(values) for values in content["models"]])


def compared_model(values: dict[str, Any]) -> ComparedModel:
    """What `ComparedModel.summary` was made of."""

    def intervals(table: dict[str, Any]) -> dict[str, Interval]:
        return {name: Interval(**{"std": math.nan, **v}) for name, v in table.items()}

    both = {name: intervals(values[name]) for name in ("metrics", "difference")}
    return ComparedModel(**{**values, **both})


# --- tables ---------------------------------------------------------------------------------------


def cell(found: Outcome, i: int, metric: str, digits: int) -> str:
    """A metric of a model with its interval, in bold where it is the best."""
    value = found.models[i].metrics.get(metric)
    if value is None:
        return ""
    mean = f"{value.mean:.{digits}f}"
    if best(found.models)[metric] == i:
        mean = f"**{mean}**"
    return f"{mean} ({value.low:.{digits}f} to {value.high:.{digits}f})"


def table(found: Outcome, metrics: Sequence[str], digits: int) -> str:
    """Every model in a row, with its metrics, its size and its speed."""
    rows: list[list[str]] = []
    for i, r in enumerate(found.models):
        samples = "" if r.samples is None else f"{r.samples:,}"
        cells = [cell(found, i, m, digits) for m in metrics]
        of = [f"{r.parameters:,}", f"{r.answers:,}", f"{r.per_second:,.0f}", str(r.passes)]
        rows.append([f"`{r.model}`", samples, *cells, *of])
    columns = ["model", "samples", *metrics, "parameters", "answers", "answers/s", "passes"]
    return markdown(columns, rows)


def differences(found: Outcome, metrics: Sequence[str]) -> str:
    """Each metric of each model minus that of the first, with the interval of the difference."""
    rows: list[list[str]] = []
    for r in found.models[1:]:
        cells = [r.difference.get(m) for m in metrics]
        rows.append(
            [
                f"`{r.name}`",
                *(
                    "" if v is None else f"{v.mean:+.3f} ({v.low:+.3f} to {v.high:+.3f})"
                    for v in cells
                ),
            ]
        )
    words = f"Minus `{found.models[0].name}`, slice by slice, with 95 % intervals over patients:"
    return f"{words}\n\n{markdown(['model', *metrics], rows)}"


def trainings(found: Outcome) -> str:
    """How each model was made."""
    rows: list[list[str]] = []
    for name, model in found.task.models.items():
        config, made = load_config(find(model)), origin(find(model))
        t, usual = config.train, preset(name).train.steps
        size = f"{t.steps:,} steps of {t.batch}"
        words = ["mue train", name, *(["--data lidc"] if found.task.data else [])]
        if t.steps != usual:
            size += f" (the preset has {usual:,})"
            words.append(f"--train.steps {t.steps}")
        afterwards = "calibration" in made and not t.calibrate
        target = f"runs/{name}-raw" if afterwards else f"runs/{name}"
        if afterwards and preset(name).train.calibrate:
            words.append("--train.no-calibrate")
        command = f"`{' '.join([*words, '--out', target])}`"
        if afterwards:
            command += f", then `mue calibrate {target} runs/{name} --data lidc`"
        about = [f"`{config.method}`", size, str(t.seed), made["version"], made["commit"]]
        rows.append([f"`{name}`", *about, command])
    columns = ["model", "method", "trained for", "seed", "version", "commit", "command"]
    return markdown(columns, rows, left=len(columns))


def shortened(found: Outcome) -> str:
    """Which models were trained for another number of steps than their presets have."""
    steps: dict[tuple[int, int], list[str]] = {}
    for name, model in found.task.models.items():
        pair = (load_config(find(model)).train.steps, preset(name).train.steps)
        if pair[0] != pair[1]:
            steps.setdefault(pair, []).append(f"`{name}`")
    return " ".join(
        f"Trained for {taken:,} steps instead of the {usual:,} of the preset: {', '.join(names)}."
        for (taken, usual), names in steps.items()
    )


def provenance(found: Outcome) -> str:
    """What the numbers depend on besides the models."""
    made, data = found.content["evaluated_with"], found.task.data
    if data is None:
        inputs, over = f"{found.content['inputs']:,} test inputs", "inputs"
    else:
        slices = open_prepared(data)
        test = slices.members("test")
        patients = {slices.rows[i].patient for i in test}
        inputs, over = f"{len(test):,} test slices of {len(patients)} patients", "patients"
    target = "DATA=lidc" if data is not None else ""
    call = f"make results-compare {target}".strip()
    took = f", in {made['seconds']:.0f} s" if "seconds" in made else ""
    code = f"version {made['version']}, commit {made.get('commit', 'not known')}"
    return (
        f"Compared by `{call}`{took}: {code}, torch {made['torch']}, {inputs}, seed "
        f"{found.content['seed']}. In brackets: 95 % bootstrap interval over {over}. "
        f"In bold: the best mean. {speed(found)}"
    )


def speed(found: Outcome) -> str:
    """Where answers a second were measured."""
    made = found.content["evaluated_with"]
    place = f"{made['name']} ({made['device']})" if "name" in made else f"a {made['device']}"
    if made["device"] == "cpu" and (threads := made.get("threads")):
        place = f"{threads} thread{'s' if threads > 1 else ''} of {place}"
    return f"Answers a second on {place}, eight inputs at a time."


# --- text -----------------------------------------------------------------------------------------


def by_chance(samples: int) -> float:
    """mode_tv of samples of the true distribution itself, mean over categories.

    Each share is off by sqrt(2 p (1 - p) / (pi n)) in the mean.
    """
    off = [
        sum(math.sqrt(2 * p * (1 - p) / (math.pi * samples)) for p in q) / 2
        for _, q in CATEGORIES.values()
    ]
    return sum(off) / len(off)


def summary_guess(found: Outcome) -> str:
    """How far Probabilistic U-Net is from ours, and whether more samples would help."""
    (ours,) = found.of("guess-exact")
    theirs = min(found.of("guess-probunet"), key=lambda r: r.metrics["mode_tv"].mean)
    tv, their_tv = ours.metrics["mode_tv"].mean, theirs.metrics["mode_tv"].mean
    curves = found.content["curves"]
    (one,) = curves["guess-exact"]
    points = [Point(**p) for p in curves["guess-probunet"]]
    reached = [p for p in points if p.mode_tv <= one["mode_tv"]]
    before, last = points[-3], points[-1]
    if reached:
        reach = f"it is as near as that with {reached[0].answers:,} samples"
    else:
        reach = (
            f"it levels off: {before.mode_tv:.3f} with {before.answers:,} samples, "
            f"{last.mode_tv:.3f} with {last.answers:,}, and no number up to there is enough"
        )
    samples = theirs.samples or 1
    return (
        f"`guess-exact` is at a mode_tv of {tv:.4f} after one pass, with {ours.answers} ranked "
        f"answers. `guess-probunet` is at {their_tv:.2f} with {samples:,} samples, "
        f"**{their_tv / tv:.0f} times as far** from the truth. On the curve, over "
        f"{curves['inputs']} inputs, {reach}. Sampling noise does not explain it: {samples:,} "
        f"samples of the true distribution itself would be at {by_chance(samples):.2f}."
    )


def summary_lidc(found: Outcome) -> str:
    """Whether the intervals of ours and of Probabilistic U-Net overlap."""
    (ours,) = found.of("lidc-exact")
    sentences: list[str] = []
    for metric in ("ged_16", "hm_iou_16"):
        sign = -1 if higher_is_better(metric) else 1
        rows = [r for r in found.of("lidc-probunet") if metric in r.metrics]
        theirs = min(rows, key=lambda r: sign * r.metrics[metric].mean)
        a, b = ours.metrics[metric], theirs.metrics[metric]
        ahead = ours if sign * a.mean < sign * b.mean else theirs
        differ = a.low > b.high or b.low > a.high
        sentences.append(
            f"In {metric} `{ahead.model}` is ahead: {a.mean:.3f} ({a.low:.3f} to {a.high:.3f}) for "
            f"`{ours.model}`, {b.mean:.3f} ({b.low:.3f} to {b.high:.3f}) for `{theirs.model}` with "
            f"{theirs.samples} samples; the intervals {'do not overlap' if differ else 'overlap'}."
        )
    return " ".join(sentences)


# --- pages ----------------------------------------------------------------------------------------


def write_guess(found: Outcome) -> None:
    """The section on the guessing game and its figures."""
    words, about = f"{summary_guess(found)} {shortened(found)}".strip(), provenance(found)
    parts = [
        f"    {found.task.command}",
        words,
        table(found, ("mode_tv", "mode_mae"), 4),
        about,
        trainings(found),
    ]
    insert(COMPARISON, "\n\n".join(parts), "compare-guess")
    title = f"the guessing game: {found.content['inputs']:,} test inputs, seed {SEED}"
    target = FIGURES / "compare"
    save_figure(plot_comparison(found.models, title), target / "guess.png")
    curves = dict(found.content["curves"])
    title = f"mode_tv by number of answers, {curves.pop('inputs')} test inputs"
    points = {name: [Point(**p) for p in curve] for name, curve in curves.items()}
    save_figure(plot_sample_curve(points, title), target / "samples.png")
    mue.figure("guess-probunet", out=FIGURES / "guess-probunet", device="cpu")


def write_lidc(found: Outcome) -> None:
    """The section on lesions, its figure, and the table of README.md."""
    words, about = f"{summary_lidc(found)} {shortened(found)}".strip(), provenance(found)
    rest = ("dice_top", "coverage_1", "coverage_2", "n90", "mode ece", "presence ece")
    lines = [
        [f"`{r.name}`", *(cell(found, i, m, 3) for m in rest)] for i, r in enumerate(found.models)
    ]
    parts = [
        LESIONS,
        TRAINED_ON,
        f"    {found.task.command}",
        words,
        table(found, ("ged", "ged_16", "hm_iou_16"), 3),
        markdown(["model", *rest], lines),
        differences(found, ("ged", *rest)),
        about,
        trainings(found),
    ]
    insert(COMPARISON, "\n\n".join(parts), "compare-lidc")
    write_headline()
    title = f"lesions: test patients of LIDC-IDRI, seed {SEED}"
    save_figure(plot_comparison(found.models, title), FIGURES / "compare" / "lidc.png")


def main() -> None:
    """Compare, plot, write."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("data", type=Path, nargs="?", help="prepared slices of LIDC-IDRI")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="models, comparisons")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    for task in tasks(options.runs, options.data):
        found = outcome(task, options.runs)
        (write_guess if task.data is None else write_lidc)(found)
        print(f"{task.name}: {provenance(found)}")


if __name__ == "__main__":
    main()
