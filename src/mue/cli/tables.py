"""Results as tables on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mue.commands.predict import Prediction
from mue.data.prepared.summary import DataSummary
from mue.evaluation.compare import ComparedModel, best, metrics_of
from mue.evaluation.raters import RaterEvaluation

_out, _err = Console(), Console(stderr=True)


def print_json(content: Any) -> None:
    """For machines."""
    print(json.dumps(content, indent=2))


def print_line(text: str) -> None:
    """One line, however long, without colours."""
    _out.print(text, highlight=False, soft_wrap=True)


def print_note(text: str) -> None:
    """One line on stderr."""
    _err.print(text, highlight=False, soft_wrap=True)


def print_files(files: Iterable[Path]) -> None:
    """A line for each file that was written."""
    kinds = {".png": "figure", ".csv": "slices", ".json": "report"}
    for path in files:
        print_file(kinds[path.suffix], path)


def print_file(kind: str, path: Path) -> None:
    """What was written, and where."""
    print_line(f"{kind:<9}{path}")


def print_evaluation(model: str, content: dict[str, Any], scores: object) -> None:
    """The report of a model: of raters, or of known modes."""
    if isinstance(scores, RaterEvaluation):
        print_raters(model, content)
    else:
        print_modes(model, content)


def print_modes(model: str, content: dict[str, Any]) -> None:
    """Predicted and true probability of each mode, and the metrics."""
    table = Table(title=f"{model} ({content['method']}): predicted and true probability")
    for column in ("category", "mode", "true", "predicted", "± over inputs"):
        table.add_column(column, justify="left" if column == "category" else "right")
    before = None
    for row in content["table"]:
        if before not in (None, row["group"]):
            table.add_section()
        table.add_row(
            row["group"] if row["group"] != before else "",
            str(row["mode"]),
            f"{row['true']:.3f}",
            f"{row['predicted']:.3f}",
            f"{row['deviation']:.3f}",
        )
        before = row["group"]
    _out.print(table)
    tv, rest = content["mode_tv"], content["rest"]
    _out.print(
        f"mode_tv  mean {tv['mean']:.4f}, 95th percentile {tv['p95']:.4f} "
        f"over {content['inputs']} {content['split']} inputs, seed {content['seed']}\n"
        f"rest     mean {rest['mean']:.5f} beyond the top {content['k']}\n"
        f"codes    {content['codes_in_use']} in use\n",
        highlight=False,
    )


def print_raters(model: str, content: dict[str, Any]) -> None:
    """Every metric with its interval."""
    table = Table(
        title=f"{model} ({content['method']}): {content['slices']} {content['split']} slices of "
        f"{content['patients']} patients"
    )
    for column in ("metric", "mean", "95 % interval", "± over slices"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    numbers = {k: v for k, v in content.items() if isinstance(v, dict) and "mean" in v}
    numbers |= {f"presence {k}": content["presence"][k] for k in ("brier", "ece")}
    for name, v in numbers.items():
        spread = f"{v['std']:.4f}" if "std" in v else ""
        table.add_row(name, f"{v['mean']:.4f}", f"{v['low']:.4f} to {v['high']:.4f}", spread)
    _out.print(table)
    print_line(f"codes    {content['codes_in_use']} in use")


def print_prediction(prediction: Prediction) -> None:
    """The answers to an image, the most probable first, and the probability of all others."""
    content = prediction.summary()
    table = Table("rank", "probability", "code", title=content["image"])
    for answer in content["answers"]:
        table.add_row(str(answer["rank"]), f"{answer['prob']:.4f}", str(answer["code"]))
    table.add_row("rest", f"{content['rest']:.4f}", "", style="dim")
    _out.print(table)


def print_comparison(models: Sequence[ComparedModel]) -> None:
    """A row for each model, a column for each metric, at its own width: no number is cut off."""
    metrics, ahead = metrics_of(models), best(models)
    table = Table(title="the best of each metric in bold; below it its 95 % interval")
    table.add_column("model", overflow="fold")
    for column in ("samples", *metrics, "parameters", "answers/s", "passes"):
        table.add_column(column, justify="right")
    for i, model in enumerate(models):
        cells: list[str] = []
        for metric in metrics:
            value = model.metrics.get(metric)
            if value is None:
                cells.append("–")
                continue
            mean = f"{value.mean:.4f}"
            mean = f"[bold]{mean}[/bold]" if ahead[metric] == i else mean
            cells.append(f"{mean}\n[dim]{value.low:.4f}–{value.high:.4f}[/dim]")
        table.add_row(
            model.model,
            "" if model.samples is None else str(model.samples),
            *cells,
            f"{model.parameters:,}",
            f"{model.per_second:,.0f}",
            str(model.passes),
        )
    needed = Console(width=1000).measure(table).maximum
    Console(width=max(_out.width, needed)).print(table)


def print_counts(folder: Path, found: DataSummary) -> None:
    """How many slices there are, and how many raters annotated them."""
    counts = f"{found.patients} patients, {found.nodules} nodules, {found.slices} slices"
    print_line(f"{folder}: {counts}")
    table = Table("raters who annotated a lesion", *map(str, range(len(found.annotated))))
    table.add_row("slices", *map(str, found.annotated))
    _out.print(table)


def print_summary(folder: Path, found: DataSummary) -> None:
    """Counts, splits, size and origin of prepared slices."""
    print_counts(folder, found)
    table = Table("split", "patients", "slices")
    for name, (patients, slices) in found.splits.items():
        table.add_row(name, str(patients), str(slices))
    _out.print(table)
    spacing = "unknown" if found.spacing is None else "{:.3f} to {:.3f} mm".format(*found.spacing)
    _out.print(
        f"size     {found.size[0]} x {found.size[1]}, pixels {spacing}\n"
        f"form     {found.form}\nsha256   {found.digest}",
        highlight=False,
    )
