"""The command line: parse, call one public function of the same name, print."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from mue.commands import review, run
from mue.commands import train as train_command
from mue.config.presets import PRESETS, Schedule, preset
from mue.config.schema import Config
from mue.data.build import check_data
from mue.data.prepared.splits import Split
from mue.devices import Device
from mue.errors import MueError
from mue.evaluation.compare import SAMPLES, ComparedModel, best, metrics_of
from mue.evaluation.known_modes import evaluate_modes as judge
from mue.evaluation.raters import RaterEvaluation, evaluate_raters
from mue.inference.load import load
from mue.training import distributed
from mue.training.log import LogRecord, NonFiniteError, read_log

_out, _err = Console(), Console(stderr=True)
_PATIENCE = 1.0  # seconds
_Model = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="MODEL", help="a bundled model, or a run folder"),
]
_Models = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="MODEL", help="bundled models, or run folders"),
]


def demo(out: Path = Path("runs/demo")) -> None:
    """Judge the bundled models on the guessing game and draw their answers.

    Args:
        out: where the report and the figures go
    """
    inputs = 1000
    with _bar(dict.fromkeys(run.DEMO, inputs)) as show:
        reports = run.demo(out, inputs=inputs, watch=show)
    for model, content in reports.items():
        _print_report(model, content)
    _say("report", out / "report.json")
    for model in reports:
        for path in sorted((out / "figures" / model).glob("*.png")):
            _say("figure", path)


def train(arguments: list[str]) -> None:
    """Train the preset that the first argument names; the others override its values."""
    with _said_once():
        out, data, resume, config = _parse_train(arguments)
    name = arguments[0]
    quiet, began = distributed.global_rank() != 0, time.monotonic()
    with _bar({name: config.train.steps}, disable=quiet) as show:

        def show_record(record: LogRecord) -> None:
            show(
                name,
                record.step,
                f"prior {record.prior:.3f}  reconstruction {record.reconstruction:.3f}  "
                f"commitment {record.commitment:.3f}  codes {record.codes}",
            )

        folder = train_command.train(
            config,
            out,
            data=data,
            resume=resume,
            on_record=show_record,
            on_message=None if quiet else _note,
        )
    if not quiet:
        _say("trained", folder)
        _say("figure", folder / "figures" / "history.png")
        then = f"mue evaluate {folder}" + (f" --data {data} --split val" if data else "")
        memory = max((r.memory for r in read_log(folder)), default=0)
        took = f"in {time.monotonic() - began:.0f} s, {memory:,} MiB at the most"
        _out.print(f"{took}; next: {then}", soft_wrap=True)


def _note(line: str) -> None:
    _err.print(line, soft_wrap=True, highlight=False)


def _parse_train(arguments: list[str]) -> tuple[Path, Path | None, bool, Config]:
    """Folder, data, whether to resume, and the preset's configuration with its overrides."""
    names = ", ".join(PRESETS)
    if not arguments or arguments[0].startswith("-"):
        asked = bool(arguments) and arguments[0] in ("-h", "--help")
        print(
            f"usage: mue train PRESET --out DIR [--seed N] [--resume] [overrides]\n\n"
            f"presets: {names}\n\n`mue train PRESET --help` lists what can be overridden.",
            file=sys.stdout if asked else sys.stderr,
        )
        sys.exit(0 if asked else 2)
    name, rest = arguments[0], arguments[1:]
    schedule: Schedule = "paper" if _asks_for_paper(rest) else "short"

    def parsed(
        *,
        out: Path,
        data: Path | None = None,
        seed: int | None = None,
        resume: bool = False,
        preset_schedule: Schedule = schedule,
        config: Annotated[Config, tyro.conf.arg(name="")] = preset(name, schedule),  # noqa: B008
    ) -> tuple[Path, Path | None, bool, Config]:
        """Train a preset into a run folder.

        Args:
            out: the run folder; it must not exist yet, or be empty
            data: the folder of prepared slices, for presets that learn from slices
            seed: of the weights and the data; short for --train.seed
            resume: go on from the last checkpoint in the folder
            preset_schedule: the preset's shortened schedule, or the paper's own
            config: what the preset says, value by value
        """
        del preset_schedule  # `_asks_for_paper` has seen it: the other defaults depend on it
        if seed is not None:
            config = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
        return out, data, resume, config

    return tyro.cli(parsed, args=rest, prog=f"mue train {name}")


def _asks_for_paper(arguments: list[str]) -> bool:
    """Whether the paper's schedule is asked for: it decides what the other values default to."""
    joined = [a.replace("_", "-") for a in arguments]
    return "--preset-schedule=paper" in joined or any(
        a == "--preset-schedule" and b == "paper" for a, b in pairwise(joined)
    )


def evaluate(
    model: _Model,
    /,
    data: Path | None = None,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    k: int = 16,
    out: Path | None = None,
    json: bool = False,
    device: Device = "auto",
) -> None:
    """Compare a model with the truth, or with several raters, and write report.json.

    Args:
        data: folder of prepared slices, for a model that answers slices
        split: which patients of the slices
        inputs: how many test inputs, where they are made up
        seed: of the test inputs, or of the draws of ged_n
        k: answers decoded for each made-up input
        out: folder for report.json (default: the run's own; runs/NAME for a bundled model)
        json: print the report alone, for machines
        device: where to compute
    """
    predictor = load(model, device=device)
    check_data(predictor.config.data, data)
    target = out or run.home(model)
    with _bar({model: inputs}, disable=json) as show:
        if data is None:
            judged = judge(predictor, inputs=inputs, seed=seed, k=k, watch=lambda n: show(model, n))
        else:
            judged = evaluate_raters(
                predictor,
                data,
                split=split,
                seed=seed,
                watch=lambda n, total: show(model, n, total=total),
            )
    content = run.report(model, judged)
    run.save_report(target / "report.json", content)
    if isinstance(judged, RaterEvaluation):
        judged.save_table(target / "slices.csv")
    if json:
        _print_json(content)
        return
    if isinstance(judged, RaterEvaluation):
        _print_agreement(model, content)
        _say("slices", target / "slices.csv")
    else:
        _print_report(model, content)
    _say("report", target / "report.json")


def predict(
    model: _Model,
    images: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE", help="image files")
    ],
    /,
    k: int | None = None,
    merge: bool = False,
    out: Path | None = None,
    json: bool = False,
    device: Device = "auto",
) -> None:
    """Answer image files, the most probable answer first.

    Args:
        k: how many answers (default: 8, or all where there are fewer)
        merge: join answers that are the same and add up their probabilities
        out: folder for the answers as PNG, and an overview of them
        json: print the answers alone, for machines
        device: where to compute
    """
    found = run.predict(model, images, k=k, merge=merge, out=out, device=device)
    if json:
        _print_json([p.summary() for p in found])
        return
    for prediction in found:
        content = prediction.summary()
        table = Table("rank", "probability", "code", title=content["image"])
        for answer in content["answers"]:
            table.add_row(str(answer["rank"]), f"{answer['prob']:.4f}", str(answer["code"]))
        table.add_row("rest", f"{content['rest']:.4f}", "", style="dim")
        _out.print(table)
    if out is not None:
        _say("answers", out)


def export(
    model: _Model,
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR", help="a new folder")],
    /,
    half: bool = True,
) -> None:
    """Copy what inference needs, the network and its configuration, to a folder of its own.

    Args:
        half: in half precision
    """
    _say("exported", run.export(model, out, half=half))


def calibrate(
    model: _Model,
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR", help="a new folder")],
    /,
    *,
    data: Path,
    half: bool = True,
    device: Device = "auto",
) -> None:
    """Fit a model's probabilities to the raters of the val patients, in a folder of its own.

    Args:
        data: folder of prepared slices
        half: write the model in half precision
        device: where to compute
    """
    with _bar({model: 1}) as show:
        found = review.calibrate(
            model,
            data,
            out,
            half=half,
            device=device,
            watch=lambda n, total: show(model, n, total=total),
        )
    _out.print(
        f"temperature {found.temperature:.3f}; energy distance on val "
        f"{found.before:.4f} before, {found.after:.4f} after",
        highlight=False,
    )
    _say("written", out)


def compare(
    models: _Models,
    /,
    data: Path | None = None,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    samples: tuple[int, ...] = SAMPLES,
    out: Path = Path("runs/compare"),
    json: bool = False,
    device: Device = "auto",
) -> None:
    """Judge models on the same inputs, and write comparison.json and comparison.png.

    Args:
        data: folder of prepared slices, for models that answer slices
        split: which patients of the slices
        inputs: how many test inputs, where they are made up
        seed: of the test inputs, and of what is drawn
        samples: how many answers are drawn from a model that samples
        out: folder for the comparison
        json: print the comparison alone, for machines
        device: where to compute
    """
    with _bar({}, disable=json) as show:
        found = run.compare(
            models,
            data=data,
            split=split,
            inputs=inputs,
            seed=seed,
            samples=samples,
            out=out,
            device=device,
            watch=lambda name, n, total: show(name, n, total=total),
        )
    if json:
        _print_json(found.content)
        return
    _print_rivals(found.models)
    for path in found.files:
        _say("figure" if path.suffix == ".png" else "report", path)


def figure(
    models: _Models,
    /,
    data: Path | None = None,
    split: Split = "test",
    out: Path | None = None,
    device: Device = "auto",
) -> None:
    """Draw a model's probabilities, its answers, and how its training went.

    Of several models that answer slices, the spread of GED is drawn side by side.

    Args:
        data: folder of prepared slices, for models that answer slices
        split: which patients of the slices
        out: folder for the figures (default: figures/ of the run; runs/NAME/figures if bundled)
        device: where to compute
    """
    first, *more = models or ("",)
    if not first or (more and data is None):
        raise MueError(
            f"`mue figure` must be given one MODEL, or several with --data, got {len(models)}"
        )
    if data is None:
        drawn = run.figure(first, out=out, device=device)
    else:
        with _bar(dict.fromkeys(models, 1)) as show:
            drawn = review.figure(
                models,
                data,
                split=split,
                out=out,
                device=device,
                watch=lambda name, n, total: show(name, n, total=total),
            )
    for path in drawn:
        _say("figure", path)


def import_(
    collection: Annotated[
        Literal["lidc"], tyro.conf.Positional, tyro.conf.arg(metavar="lidc", help="LIDC-IDRI")
    ],
    sources: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="SOURCE", help="folders, archives or a pickle, all of one form"),
    ],
    /,
    *,
    out: Path,
    size: int | None = None,
    window: tuple[float, float] | None = None,
    skip_bad: bool = False,
) -> None:
    """Prepare annotated slices for training and evaluation.

    Args:
        out: the folder to make; it must not exist yet, or be empty
        size: side of the crops in pixels (default: as they are; 128 for DICOM)
        window: Hounsfield units of black and white, for DICOM (default: each crop's own range)
        skip_bad: import the rest where something cannot be imported, and list what was left out
    """
    from mue.data.lidc.importer import (
        import_lidc,  # pydicom takes its time, and only this needs it
    )

    with _bar({collection: 1}) as show:
        found = import_lidc(
            sources,
            out,
            size=size,
            window=window,
            skip_bad=skip_bad,
            progress=lambda n, total: show(collection, n >> 20, "MiB", total=max(1, total >> 20)),
        )
    for bad in found.rejected:
        _err.print(f"left out {bad.what}: {bad.why}", highlight=False, soft_wrap=True)
    _print_counts(out, found.patients, found.nodules, found.slices, found.annotated)
    if found.rejected:
        _out.print(f"{len(found.rejected)} left out, listed above")
    _say("prepared", out)


def inspect(
    data: Annotated[
        Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR", help="prepared slices")
    ],
    /,
    out: Path | None = None,
    verify: bool = False,
) -> None:
    """Show what prepared slices hold: counts, splits, and a contact sheet.

    Args:
        out: where the contact sheet goes (default: runs/DIR-sheet.png)
        verify: read everything and compare it with the digests from the import
    """
    found = review.inspect(data, out, verify=verify)
    _print_counts(data, found.patients, found.nodules, found.slices, found.drawn)
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
    _say("sheet", found.sheet)


def _print_counts(
    folder: Path, patients: int, nodules: int, slices: int, drawn: tuple[int, ...]
) -> None:
    _out.print(
        f"{folder}: {patients} patients, {nodules} nodules, {slices} slices",
        highlight=False,
        soft_wrap=True,
    )
    table = Table("raters who drew a lesion", *map(str, range(len(drawn))))
    table.add_row("slices", *(str(n) for n in drawn))
    _out.print(table)


def _train_help(arguments: tyro.conf.Positional[tuple[str, ...]] = ()) -> None:
    """Train a preset into a run folder: mue train PRESET --out DIR [--seed N] [--resume]."""
    train(list(arguments))


def _data_help(arguments: tyro.conf.Positional[tuple[str, ...]] = ()) -> None:
    """Prepare slices or look at them: mue data import lidc SOURCE --out DIR, mue data inspect."""
    main(["data", *arguments])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. Rejected input is one sentence on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments[:1] == ["train"]:
            train(arguments[1:])
        elif arguments[:1] == ["data"]:
            tyro.extras.subcommand_cli_from_dict(
                {"import": import_, "inspect": inspect},
                prog="mue data",
                description="Prepare annotated slices, and look at them.",
                args=arguments[1:],
            )
        else:
            tyro.extras.subcommand_cli_from_dict(
                {
                    "demo": demo,
                    "data": _data_help,
                    "train": _train_help,
                    "evaluate": evaluate,
                    "predict": predict,
                    "figure": figure,
                    "compare": compare,
                    "calibrate": calibrate,
                    "export": export,
                },
                prog="mue",
                description="Ranked answers with probabilities, for problems with more than one.",
                args=arguments,
            )
    except train_command.Interrupted as stop:
        _fail(f"{stop}; go on with --resume", 130, once=True)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except NonFiniteError as error:
        _fail(str(error), 1, once=True)
    except distributed.LostError as error:
        _fail(str(error), 1)
    except distributed.ElsewhereError as error:
        _fail(str(error), 2, once=True)
    except BrokenPipeError:  # who reads our output has seen enough
        sys.stderr.close()
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except ValueError as error:
        _fail(str(error), 2)


def _fail(sentence: str, code: int, *, once: bool = False) -> None:
    """Leave with a sentence. Of several processes that all know it, the first says it."""
    if once and distributed.global_rank() != 0:
        _leave_quietly(code)
    print(f"mue: {sentence}", file=sys.stderr)
    sys.exit(code)


def _leave_quietly(code: int) -> None:
    """Leave when another process has said why: `torchrun` ends all as soon as one has left."""
    time.sleep(_PATIENCE)
    sys.exit(code)


@contextlib.contextmanager
def _said_once() -> Iterator[None]:
    """Let one process of a machine say what is wrong with a command that all of them were given."""
    if distributed.local_rank() == 0:
        yield
        return
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            yield
        except ValueError:
            _leave_quietly(2)
        except SystemExit as stop:
            _leave_quietly(2 if stop.code else 0)


def _say(what: str, path: Path) -> None:
    _out.print(f"{what:<9}{path}", highlight=False, soft_wrap=True)


def _print_json(content: Any) -> None:
    print(dumps(content, indent=2))


def _print_report(model: str, content: dict[str, Any]) -> None:
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
        f"over {content['inputs']} test inputs, seed {content['seed']}\n"
        f"rest     mean {rest['mean']:.5f} beyond the top {content['k']}\n"
        f"codes    {content['codes_in_use']} in use\n",
        highlight=False,
    )


def _print_agreement(model: str, content: dict[str, Any]) -> None:
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
    _out.print(f"codes    {content['codes_in_use']} in use", highlight=False)


def _print_rivals(rivals: Sequence[ComparedModel]) -> None:
    metrics, ahead = metrics_of(rivals), best(rivals)
    table = Table(title="the best of each metric in bold; below it its 95 % interval")
    table.add_column("model", overflow="fold")
    for column in ("samples", *metrics, "parameters", "answers/s", "passes"):
        table.add_column(column, justify="right")
    for i, rival in enumerate(rivals):
        cells: list[str] = []
        for metric in metrics:
            value = rival.metrics.get(metric)
            if value is None:
                cells.append("–")
                continue
            mean = f"{value.mean:.4f}"
            mean = f"[bold]{mean}[/bold]" if ahead[metric] == i else mean
            cells.append(f"{mean}\n[dim]{value.low:.4f}–{value.high:.4f}[/dim]")
        table.add_row(
            rival.model,
            "" if rival.samples is None else str(rival.samples),
            *cells,
            f"{rival.parameters:,}",
            f"{rival.per_second:,.0f}",
            str(rival.passes),
        )
    _print_whole(table)


def _print_whole(table: Table) -> None:
    """Print a table at its own width: a long line is better than half a number."""
    needed = Console(width=1000).measure(table).maximum
    Console(width=max(_out.width, needed)).print(table)


@contextlib.contextmanager
def _bar(totals: dict[str, int], *, disable: bool = False) -> Iterator[Callable[..., None]]:
    """Progress bars that appear with the first progress: bad input is answered by words alone."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=_err,
    )
    tasks = {name: bar.add_task(name, total=total, note="") for name, total in totals.items()}

    def show(name: str, done: int, note: str = "", *, total: int | None = None) -> None:
        if not disable:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total, note="")
            bar.start()
            bar.update(tasks[name], completed=done, note=note, total=total)

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()
