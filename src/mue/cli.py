"""The command line: parse, call one public function of the same name, print."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
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
from mue.predict import Device, load
from mue.train import NonFiniteError, Record

_out, _err = Console(), Console(stderr=True)
_Model = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="MODEL", help="a bundled model, or a run folder"),
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
        seed: int | None = None,
        resume: bool = False,
        preset_schedule: Schedule = schedule,
        config: Annotated[Config, tyro.conf.arg(name="")] = preset(name, schedule),  # noqa: B008
    ) -> tuple[Path, bool, Config]:
        """Train a preset into a run folder.

        Args:
            out: the run folder; it must not exist yet, or be empty
            seed: of the weights and the data; short for --train.seed
            resume: go on from the last checkpoint in the folder
            preset_schedule: the preset's shortened schedule, or the paper's own
            config: what the preset says, value by value
        """
        del preset_schedule  # `_asks_for_paper` has seen it: the other defaults depend on it
        if seed is not None:
            config = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
        return out, resume, config

    out, resume, config = tyro.cli(parsed, args=rest, prog=f"mue train {name}")
    quiet, began = distributed.global_rank() != 0, time.monotonic()
    with _bar({name: config.train.steps}, disable=quiet) as show:

        def watch(record: Record) -> None:
            show(
                name,
                record.step,
                f"prior {record.prior:.3f}  reconstruction {record.reconstruction:.3f}  "
                f"commitment {record.commitment:.3f}  codes {record.codes}",
            )

        folder = run.train(config, out, resume=resume, watch=watch)
    if not quiet:
        _say("trained", folder)
        _say("figure", folder / "figures" / "history.png")
        _out.print(
            f"in {time.monotonic() - began:.0f} s; next: mue evaluate {folder}", soft_wrap=True
        )


def _asks_for_paper(arguments: list[str]) -> bool:
    """Whether the paper's schedule is asked for: it decides what the other values default to."""
    joined = [a.replace("_", "-") for a in arguments]
    return "--preset-schedule=paper" in joined or any(
        a == "--preset-schedule" and b == "paper" for a, b in pairwise(joined)
    )


def evaluate(
    model: _Model,
    /,
    inputs: int = 1000,
    seed: int = 0,
    k: int = 16,
    out: Path | None = None,
    json: bool = False,
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
    with _bar({model: inputs}, disable=json) as show:
        judged = judge(predictor, inputs=inputs, seed=seed, k=k, watch=lambda n: show(model, n))
    content = run.report(model, judged)
    target = out or run.home(model)
    run.save_report(target / "report.json", content)
    if json:
        _print_json(content)
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


def figure(model: _Model, /, out: Path | None = None, device: Device = "auto") -> None:
    """Draw a model's probabilities, its answers, and how its training went.

    Args:
        out: folder for the figures (default: figures/ of the run; runs/NAME/figures if bundled)
        device: where to compute
    """
    for path in run.figure(model, out=out, device=device):
        _say("figure", path)


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
                    "export": export,
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
    except BrokenPipeError:  # who reads our output has seen enough
        sys.stderr.close()
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except ValueError as error:
        _fail(str(error), 2)


def _fail(sentence: str, code: int) -> None:
    print(f"mue: {sentence}", file=sys.stderr)
    sys.exit(code)


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

    def show(name: str, done: int, note: str = "") -> None:
        if not disable:
            bar.start()
            bar.update(tasks[name], completed=done, note=note)

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()
