"""The command line: parse, call one public function of the same name, print."""

from __future__ import annotations

import dataclasses
import sys
import time
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Annotated, Any

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

from mue import distributed, run
from mue.config import PRESETS, Config, Schedule, preset
from mue.evaluate import evaluate as judge
from mue.predict import Device, find, load
from mue.train import NonFiniteError, Record

_out, _err = Console(), Console(stderr=True)
_Model = Annotated[
    str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help="a bundled model, or a run folder")
]


def demo(out: Path = Path("runs/demo")) -> None:
    """Judge the bundled models on the guessing game and draw their answers.

    Args:
        out: where the report and the figures go
    """
    inputs = 1000
    with _bar() as bar:
        tasks = {m: bar.add_task(m, total=inputs, note="") for m in run.DEMO}
        reports = run.demo(
            out, inputs=inputs, watch=lambda model, n: bar.update(tasks[model], completed=n)
        )
    for model, content in reports.items():
        _print_report(model, content)
    _out.print(f"report   {out / 'report.json'}", highlight=False, soft_wrap=True)
    for model in reports:
        for name in ("modes", "top-4", "top-6"):
            path = out / "figures" / model / f"{name}.png"
            _out.print(f"figure   {path}", highlight=False, soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Train a preset into a run folder."""

    out: Path
    """the run folder; it must not exist yet, or be empty"""
    seed: int | None = None
    """of the weights and the data; short for --train.seed"""
    resume: bool = False
    """go on from the last checkpoint in the folder"""
    preset_schedule: Schedule = "short"
    """the preset's shortened schedule, or the paper's own"""
    config: Annotated[Config, tyro.conf.arg(name="")]


def train(arguments: list[str]) -> None:
    """Train the preset that the first argument names; the others override its values."""
    names = ", ".join(PRESETS)
    if not arguments or arguments[0].startswith("-"):
        asked = bool(arguments) and arguments[0] in ("-h", "--help")
        print(  # noqa: T201
            f"usage: mue train PRESET --out DIR [--seed N] [--resume] [overrides]\n\n"
            f"presets: {names}\n\n`mue train PRESET --help` lists what can be overridden.",
            file=sys.stdout if asked else sys.stderr,
        )
        sys.exit(0 if asked else 2)
    name, rest = arguments[0], arguments[1:]
    schedule: Schedule = "paper" if _asks_for_paper(rest) else "short"
    default = TrainOptions(
        out=tyro.MISSING, preset_schedule=schedule, config=preset(name, schedule)
    )
    options = tyro.cli(TrainOptions, args=rest, default=default, prog=f"mue train {name}")
    config = options.config
    if options.seed is not None:
        config = dataclasses.replace(
            config, train=dataclasses.replace(config.train, seed=options.seed)
        )
    quiet = distributed.global_rank() != 0
    with _bar(disable=quiet) as bar:
        task = bar.add_task(name, total=config.train.steps, note="")

        def watch(record: Record) -> None:
            note = (
                f"prior {record.prior:.3f}  reconstruction {record.reconstruction:.3f}  "
                f"commitment {record.commitment:.3f}  codes {record.codes}"
            )
            bar.update(task, completed=record.step, note=note)

        began = time.monotonic()
        folder = run.train(config, options.out, resume=options.resume, watch=watch)
    if not quiet:
        _out.print(
            f"trained  {folder} ({time.monotonic() - began:.0f} s)\n"
            f"figure   {folder / 'figures' / 'history.png'}\n"
            f"next     mue evaluate {folder}",
            highlight=False,
            soft_wrap=True,
        )


def _asks_for_paper(arguments: list[str]) -> bool:
    """Whether the paper's schedule is asked for: it decides what the other values default to."""
    joined = [a.replace("_", "-") for a in arguments]
    return "--preset-schedule=paper" in joined or any(
        a == "--preset-schedule" and b == "paper" for a, b in zip(joined, joined[1:], strict=False)
    )


def evaluate(
    model: _Model,
    /,
    inputs: int = 1000,
    seed: int = 0,
    k: int = 16,
    out: Path | None = None,
    json: bool = False,  # noqa: A002
    device: Device = "auto",
) -> None:
    """Compare predicted with true probabilities on test inputs, and write report.json.

    Args:
        inputs: how many test inputs
        seed: of the test inputs
        k: answers decoded for each input
        out: folder for report.json (default: the run's own; runs/NAME for a bundled model)
        json: print the report alone, for machines
        device: where to compute
    """
    predictor = load(model, device=device)
    with _bar(disable=json) as bar:
        task = bar.add_task(model, total=inputs, note="")
        judged = judge(
            predictor,
            inputs=inputs,
            seed=seed,
            k=k,
            watch=lambda n: bar.update(task, completed=n),
        )
    content = run.report(model, judged)
    folder = find(model)
    target = out or (folder if Path(model) == folder else Path("runs") / model)
    run.save_report(target / "report.json", content)
    if json:
        _print_json(content)
    else:
        _print_report(model, content)
        _out.print(f"report   {target / 'report.json'}", highlight=False, soft_wrap=True)


def predict(
    model: _Model,
    images: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE", help="image files")
    ],
    /,
    k: int = 8,
    merge: bool = False,
    out: Path | None = None,
    json: bool = False,  # noqa: A002
    device: Device = "auto",
) -> None:
    """Answer image files, the most probable answer first.

    Args:
        k: how many answers
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
        _out.print(f"answers  {out}", highlight=False, soft_wrap=True)


def figure(model: _Model, /, out: Path | None = None, device: Device = "auto") -> None:
    """Draw a model's probabilities, its answers, and how its training went.

    Args:
        out: folder for the figures (default: figures/ of the run; runs/NAME/figures if bundled)
        device: where to compute
    """
    for path in run.figure(model, out=out, device=device):
        _out.print(f"figure   {path}", highlight=False, soft_wrap=True)


def _train_help(arguments: tyro.conf.Positional[tuple[str, ...]] = ()) -> None:
    """Train a preset into a run folder: mue train PRESET --out DIR [--seed N] [--resume]."""
    train(list(arguments))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. Bad input is one sentence on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments[:1] == ["train"]:
            train(arguments[1:])
        else:
            tyro.extras.subcommand_cli_from_dict(
                {
                    "demo": demo,
                    "train": _train_help,
                    "evaluate": evaluate,
                    "predict": predict,
                    "figure": figure,
                },
                prog="mue",
                description="Ranked answers with probabilities, for problems with more than one.",
                args=arguments,
            )
    except run.Interrupted as stop:
        _fail(f"{stop}; go on with --resume", 130)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except NonFiniteError as error:
        _fail(str(error), 1)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except ValueError as error:
        _fail(str(error), 2)


def _fail(sentence: str, code: int) -> None:
    print(f"mue: {sentence}", file=sys.stderr)  # noqa: T201
    sys.exit(code)


def _print_json(content: Any) -> None:
    print(dumps(content, indent=2))  # noqa: T201


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


def _bar(*, disable: bool = False) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=_err,
        disable=disable,
    )
