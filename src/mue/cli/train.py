"""`mue train`: a preset, or what suits the data, with any of its values overridden."""

import dataclasses
import functools
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import arg

from mue.cli import tables
from mue.cli.exits import said_once
from mue.cli.parser import parse
from mue.cli.progress import progress_bars
from mue.commands import train
from mue.commands.auto import auto
from mue.config.auto import EXAMPLE, Choice, choose
from mue.config.presets import PRESETS, Baseline, Length, preset
from mue.config.schema import Config
from mue.errors import MueError
from mue.runs.folder import CONFIG, check_run_folder, load_config
from mue.runs.log import (
    LogRecord,
    ValidationRecord,
    best_validation,
    read_log,
    read_validations,
)
from mue.runtime.atomic import check_folder
from mue.runtime.collectives import env_int
from mue.runtime.devices import Device

AUTO = "auto"
"""In place of a preset: chosen from the data."""


def train_command(arguments: list[str], prog: str) -> None:
    """Train the preset that the first argument names; the others override its values."""
    with said_once():
        start = _parse_train(arguments, prog)
    name, data = arguments[0], start.keywords["data"]
    config: Config = start.keywords["config"]
    quiet, began = env_int("RANK", 0) != 0, time.monotonic()
    resumed = start.keywords["resume"] and not quiet
    validated = read_validations(start.keywords["out"]) if resumed else []
    with progress_bars(disable=quiet) as show:

        def on_record(record: LogRecord) -> None:
            note = (
                f"prior {record.prior:.3f}  reconstruction {record.reconstruction:.3f}  "
                f"commitment {record.commitment:.3f}  codes {record.codes}"
            )
            show(name, record.step, config.train.steps, note)

        def on_validation(record: ValidationRecord) -> None:
            validated.append(record)
            best = best_validation(validated)
            note = (
                f"{record.metric} {record.score:.4f} (best {best.score:.4f} at {best.step})  "
                f"nll {record.nll:.3f}  ece {record.ece:.3f}  codes {record.codes}"
            )
            show("val", record.step, config.train.steps, note)

        result = start(
            on_record=on_record,
            on_validation=on_validation,
            on_message=None if quiet else tables.print_note,
        )
    if not quiet:
        folder, held_back = result.folder, result.health is not None
        figures = [path for path in result.files if path.suffix == ".png"]
        tables.print_file("trained", folder)
        tables.print_files(figures[:1])
        then = f"mue evaluate {folder}" + f" --data {data}" * bool(data)
        then += " --split val" * bool(data and held_back)
        memory = max((r.memory for r in read_log(folder)), default=0)
        took = f"in {time.monotonic() - began:.0f} s, peak memory {memory:,} MiB"
        tables.print_line(f"{took}; next: {then}")
        if result.health is not None:
            content: dict[str, Any] = result.health.report()
            tables.print_health(content)
            tables.print_shares(content["codes"])
            tables.print_files(figures[1:])
        masks = config.method in ("vq", "exact") and config.objective.likelihood != "normal"
        if masks and held_back and not config.train.calibrate:
            command = f"mue calibrate {folder} {folder}-calibrated" + (
                f" --data {data}" * bool(data)
            )
            tables.print_line(f"to fit its probabilities to inputs not trained on: {command}")


def _parse_train(arguments: list[str], prog: str) -> functools.partial[train.TrainResult]:
    """The call of `mue.train` that the arguments describe."""
    if not arguments or arguments[0].startswith("-"):
        show_help = bool(arguments) and arguments[0] in ("-h", "--help")
        print(
            f"usage: {prog} PRESET --out DIR [--seed N] [--resume] [overrides]\n\n"
            f"presets: {AUTO} (chosen from --data), {', '.join(PRESETS)}\n\n"
            f"`{prog} PRESET --help` lists what can be overridden.",
            file=sys.stdout if show_help else sys.stderr,
        )
        sys.exit(0 if show_help else 2)
    name, rest = arguments[0], arguments[1:]

    def chosen(preset_schedule: Length = "short") -> Length:
        return preset_schedule

    # it decides what the other values default to, so it is parsed first
    prog = f"{prog} {name}"
    length, _ = parse(
        prog, lambda: tyro.cli(chosen, args=rest, add_help=False, return_unknown_args=True)
    )
    choice = _choice(rest, prog) if name == AUTO else Choice(preset(name, length), {})

    def called(
        *,
        out: Path,
        data: Path | None = None,
        seed: int | None = None,
        resume: bool = False,
        minutes: float | None = None,
        baseline: Baseline | None = None,
        preset_schedule: Length = length,
        config: Annotated[Config, arg(name="")] = choice.config,
    ) -> functools.partial[train.TrainResult]:
        """Train a preset into a run folder.

        Args:
            out: the run folder; it must not exist yet, or be empty
            data: folder of prepared slices, for presets that learn from slices
            seed: of the weights and the data; short for --train.seed
            resume: continue from the last checkpoint in the folder
            minutes: how long training may take, by default 5 on a CPU (auto)
            baseline: a baseline by the same settings, in place of our model (auto)
            preset_schedule: the preset's short schedule, or the paper's own
            config: what the preset says, value by value
        """
        del preset_schedule
        for flag, value in (("--minutes", minutes), ("--baseline", baseline)):
            if value is not None and name != AUTO:
                raise MueError(f"{flag} is for `mue train auto`, got it for the preset {name}")
        if seed is not None:
            config = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
        reasons = choice.kept_in(config)
        return functools.partial(
            train.train, config=config, out=out, data=data, resume=resume, reasons=reasons
        )

    return parse(prog, lambda: tyro.cli(called, args=rest, prog=prog))


def _choice(arguments: list[str], prog: str) -> Choice:
    """What `auto` chooses; to resume, what it chose. For --help, an example."""
    if {"-h", "--help"} & set(arguments):
        return choose(EXAMPLE, "cpu")

    def peek(
        *,
        out: Path | None = None,
        data: Path | None = None,
        resume: bool = False,
        minutes: float | None = None,
        baseline: Baseline | None = None,
        steps: Annotated[int | None, arg(name="train.steps")] = None,
        device: Annotated[Device, arg(name="compute.device")] = "auto",
    ) -> Choice:
        if data is None:
            raise MueError(
                "--data must name a folder of prepared data for `mue train auto`, which chooses "
                "by it; make one by `mue data import`"
            )
        if resume and out is not None and (out / CONFIG).is_file():
            return Choice(load_config(out), {})
        if out is None:  # the arguments are parsed once more, and that is said then
            return choose(EXAMPLE, "cpu")
        check_run_folder(out, resume=resume)
        check_folder(out)
        return auto(data, minutes=minutes, steps=steps, baseline=baseline, device=device)

    return parse(
        prog, lambda: tyro.cli(peek, args=arguments, add_help=False, return_unknown_args=True)
    )[0]
