"""Results as tables on stdout."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mue.commands.calibrate import CalibrationResult
from mue.commands.compare import ComparisonResult
from mue.commands.demo import DemoResult
from mue.commands.evaluate import EvaluationResult
from mue.commands.export import ExportResult
from mue.commands.export_folder import ExportedFolderResult
from mue.commands.figure import FigureResult
from mue.commands.imported import ImportResult
from mue.commands.inspect import InspectionResult
from mue.commands.new import NewDataResult
from mue.commands.predict import PredictionResult
from mue.data.prepared.summary import DataSummary
from mue.errors import printable
from mue.evaluation.compare import best, metrics_of
from mue.evaluation.raters import RaterEvaluation

_out = Console(markup=False, emoji=False)  # names of files may look like markup
_MAX_CODES = 16
_MAX_LINE = 1 << 14
_MAX_IMAGES = 8


def print_line(text: str, *, console: Console = _out) -> None:
    """One line, however long, without colours."""
    console.print(printable(text, _MAX_LINE), highlight=False, soft_wrap=True)


print_note = functools.partial(print_line, console=Console(stderr=True, markup=False, emoji=False))


def print_file(kind: str, path: Path) -> None:
    """What was written, and where."""
    print_line(f"{kind:<9}{path}")


def print_files(files: Iterable[Path]) -> None:
    """The files that were written, each with what it is."""
    kinds = {".png": "figure", ".csv": "slices", ".json": "report"}
    for path in files:
        print_file(kinds[path.suffix], path)


def _table(title: str, *columns: str) -> Table:
    """A table of numbers; its first column names them."""
    table = Table(title=title)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", overflow="fold")
    return table


@functools.singledispatch
def print_result(result: FigureResult) -> None:
    """Print the files that a command wrote; other results print more, below."""
    print_files(result.files)


@print_result.register
def _(_: None) -> None:
    """What has printed all it had to say."""


@print_result.register
def _(result: EvaluationResult) -> None:
    if isinstance(result.scores, RaterEvaluation):
        _print_raters(result.report)
    else:
        _print_modes(result.report)
    _print_codes(result.report["health"]["codes"])
    print_health(result.report["health"])
    print_files(result.files)


def _print_codes(codes: list[dict[str, Any]]) -> None:
    """The codes in use, the most probable first."""
    columns = ("code", "prior", "frequency", "reconstruction", "blends", "same as")
    table = _table("codes in use, on held-back inputs", *columns)
    for c in codes[:_MAX_CODES]:
        numbers = (f"{c[name]:.3f}" for name in columns[1:3])
        blends, same = f"{c['blends']:.0%}", " ".join(map(str, c["duplicates"]))
        table.add_row(str(c["code"]), *numbers, f"{c['reconstruction']:.2f}", blends, same)
    if codes:
        _out.print(table)


def print_health(content: dict[str, Any]) -> None:
    """The verdict on a model, and what to do about each finding."""
    print_line(f"health   {content['verdict']}")
    for note in content["notes"]:
        print_line(f"         {note}")
    for finding in content["findings"]:
        print_line(f"         {finding['kind']}: {finding['description']} {finding['remedy']}")


def print_shares(codes: list[dict[str, Any]]) -> None:
    """The codes in use in one line, each with its mean probability, the most probable first."""
    shares = [f"{c['code']} {c['prior']:.0%}" for c in codes[:_MAX_CODES]]
    more = [f"{len(codes) - _MAX_CODES} more"] * (len(codes) > _MAX_CODES)
    if codes:
        print_line(f"codes    {', '.join(shares + more)}")


@print_result.register
def _(result: DemoResult) -> None:
    for content in result.reports.values():
        _print_modes(content)
    print_files(result.files)


def _print_modes(content: dict[str, Any]) -> None:
    """Predicted and true probability of each mode, and the metrics."""
    title = f"{content['model']} ({content['method']}): predicted and true probability"
    table = _table(title, "category", "mode", "true", "predicted", "± over inputs")
    before = None
    for row in content["table"]:
        group = row["group"]
        if before not in (None, group):
            table.add_section()
        numbers = (f"{row[name]:.3f}" for name in ("true", "predicted", "deviation"))
        table.add_row("" if group == before else group, str(row["mode"]), *numbers)
        before = group
    _out.print(table)
    tv, rest = content["mode_tv"], content["rest"]
    _out.print(
        f"mode_tv  mean {tv['mean']:.4f}, 95th percentile {tv['p95']:.4f} "
        f"over {content['inputs']} {content['split']} inputs, seed {content['seed']}\n"
        f"rest     mean {rest['mean']:.5f} beyond the top {content['k']}\n"
        f"modes    {content['modes']['min']} to {content['modes']['max']} for an input\n"
        f"codes    {content['codes_in_use']} in use\n",
        highlight=False,
    )


def _print_raters(content: dict[str, Any]) -> None:
    """Every metric with its interval."""
    title = (
        f"{content['model']} ({content['method']}): {content['slices']} {content['split']} slices "
        f"of {content['patients']} patients"
    )
    table = _table(title, "metric", "mean", "95 % interval", "± over slices")
    numbers = {k: v for k, v in content.items() if isinstance(v, dict) and "mean" in v}
    for kind in ("mode", "presence"):
        numbers |= {f"{kind} {k}": content[kind][k] for k in ("brier", "ece")}
    for name, v in numbers.items():
        spread = f"{v['std']:.4f}" if "std" in v else ""
        table.add_row(name, f"{v['mean']:.4f}", f"{v['low']:.4f} to {v['high']:.4f}", spread)
    _out.print(table)
    if classes := content.get("classes"):
        table = _table("each class by itself", "metric", *classes)
        for name in next(iter(classes.values())):
            table.add_row(name, *(f"{c[name]['mean']:.4f}" for c in classes.values()))
        _out.print(table)
    for row in content["coverage"]:
        promise = f"{row['covered']:.3f} of new raters by {row['modes']:.2f} modes"
        print_line(f"covered  {promise}, {row['promised']:g} were promised")
    print_line(f"codes    {content['codes_in_use']} in use")


@print_result.register
def _(result: PredictionResult) -> None:
    for content in result.report[:_MAX_IMAGES]:
        table = Table("rank", "probability", "codes", "spread", title=printable(content["image"]))
        for mode in content["modes"]:
            members = mode["members"]
            codes = " ".join(str(m["code"]) for m in members if m["code"] >= 0)
            codes = codes or f"{len(members)} without a code"
            numbers = f"{mode['prob']:.4f}", codes, f"{mode['spread']:.3f}"
            table.add_row(str(mode["rank"]), *numbers)
        table.add_row("rest", f"{content['rest']:.4f}", "", "", style="dim")
        _out.print(table)
        if content["coverage"]:
            print_line(f"the answer of {content['coverage']:.0%} of new raters is among these")
    for sentence in result.rejected:
        print_note(f"left out {sentence}")
    if result.folder is not None:
        counts = f"{len(result.report)} images answered, {result.done} were before"
        if result.done or result.rejected or len(result.report) > _MAX_IMAGES:
            print_line(f"{counts}, {len(result.rejected)} left out")
        if result.files or result.done:
            print_file("answers", result.folder)


@print_result.register
def _(result: ComparisonResult) -> None:
    """A row for each model, a column for each metric, at its own width: no number is cut off."""
    metrics, winners = metrics_of(result.models), best(result.models)
    title = "the best of each metric in bold; below it its 95 % interval"
    columns = ("model", "samples", *metrics, "parameters", "answers/s", "passes")
    table = _table(title, *columns)
    for i, model in enumerate(result.models):
        cells: dict[str, str | Text] = dict.fromkeys(metrics, "–")
        for metric, value in model.metrics.items():
            bold = "bold" if winners[metric] == i else "not bold"
            interval = (f"\n{value.low:.4f}–{value.high:.4f}", "dim")
            cells[metric] = Text.assemble((f"{value.mean:.4f}", bold), interval)
        samples = "" if model.samples is None else str(model.samples)
        cost = (f"{model.parameters:,}", f"{model.per_second:,.0f}", str(model.passes))
        table.add_row(model.model, samples, *cells.values(), *cost)
    plain = functools.partial(Console, markup=False, emoji=False)
    needed = plain(width=1000).measure(table).maximum
    plain(width=max(_out.width, needed)).print(table)
    print_files(result.files)


@print_result.register
def _(result: CalibrationResult) -> None:
    c = result.calibration
    change = f"energy distance on val {c.before:.4f} before, {c.after:.4f} after"
    print_line(f"temperature {c.temperature:.3f}; {change}")
    reach = f"{c.reachable:.1%} of raters have an answer like one of the model's"
    print_line(f"modes cut at a distance of {c.modes.cut:g}; {reach}")
    for coverage, limit in zip(c.modes.coverage, c.modes.limits, strict=True):
        print_line(f"coverage {coverage:.0%}: modes up to {limit:.3f} of the probability")
    print_file("written", result.folder)


@print_result.register
def _(result: ExportResult) -> None:
    print_file("exported", result.folder)


@print_result.register
def _(result: NewDataResult) -> None:
    print_line(f"{result.folder}: {result.train} cases to learn from, {result.test} to test")
    print_line(f"next: mue data import folder {result.folder} --out {result.folder}-prepared")


@print_result.register
def _(result: ImportResult) -> None:
    for bad in result.rejected:
        print_note(f"left out {printable(bad.what)}: {printable(bad.why)}")
    _print_counts(result.folder, result.summary)
    if result.rejected:
        print_line(f"{len(result.rejected)} left out, listed above")
    for finding in result.summary.findings:
        print_line(f"note     {finding}")
    print_file("prepared", result.folder)


@print_result.register
def _(result: ExportedFolderResult) -> None:
    print_file("exported", result.folder)
    print_line(f"to import it again: {result.command}")


@print_result.register
def _(result: InspectionResult) -> None:
    found, compared = result.summary, result.disagreement
    _print_counts(result.folder, found)
    table = Table("split", "patients", "slices")
    for name, (patients, slices) in found.splits.items():
        table.add_row(name, str(patients), str(slices))
    _out.print(table)
    sizes = " to ".join(dict.fromkeys("{} x {}".format(*found.sizes[i]) for i in (0, -1)))
    spacing = "unknown" if found.spacing is None else "{:.3f} to {:.3f} mm".format(*found.spacing)
    print_line(f"size     {sizes}, {found.channels} channels of {found.dtype}, pixels {spacing}")
    print_line(f"values   normalized by {found.normalization}")
    print_line(f"classes  {', '.join(found.labels) or 'one'}")
    if compared.images:
        pairs = ", ".join(f"{name} {iou:.3f}" for name, iou in compared.iou.items())
        print_line(f"raters   IoU of two: {pairs}; mean distance D {compared.distance:.3f}")
        best = ", ".join(f"{name} {value:.3f}" for name, value in compared.best.items())
        print_line(f"best     {best}: what a model reaches that knows how raters answer")
    print_line(f"form     {found.form}")
    print_line(f"sha256   {found.digest}")
    for finding in found.findings:
        print_line(f"note     {finding}")
    print_file("sheet", result.files[0])


def _print_counts(folder: Path, found: DataSummary) -> None:
    """How many slices there are, and how many raters annotated them."""
    counts = f"{found.patients} patients, {found.cases} cases, {found.slices} slices"
    print_line(f"{folder}: {counts}")
    table = Table("raters", *map(str, range(len(found.annotated))))
    table.add_row("slices that have so many", *map(str, found.raters))
    table.add_row("slices that so many annotated", *map(str, found.annotated))
    _out.print(table)
