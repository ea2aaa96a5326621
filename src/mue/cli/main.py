"""The command line: parse, call the public function of the same name, print."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import tyro
from tyro.conf import Positional, arg

from mue.cli import tables
from mue.cli.progress import progress_bars
from mue.commands import (
    calibrate,
    compare,
    demo,
    evaluate,
    export,
    figure,
    inspect,
    predict,
    train,
)
from mue.config.presets import PRESETS, Schedule, preset
from mue.config.schema import Config
from mue.data.prepared.splits import Split
from mue.devices import Device
from mue.errors import MueError
from mue.evaluation.compare import SAMPLES
from mue.training import distributed
from mue.training.log import LogRecord, NonFiniteError, read_log
from mue.version import __version__

_PATIENCE = 1.0  # seconds that a process waits for the one that says what is wrong
_Model = Annotated[
    str, Positional, arg(metavar="MODEL", help="NAME of a bundled model, or a run folder")
]
_Models = Annotated[
    tuple[str, ...],
    Positional,
    arg(metavar="MODEL", help="names of bundled models, or run folders"),
]
_NewFolder = Annotated[Path, Positional, arg(metavar="DIR", help="a new folder")]


def demo_command(out: Path = Path("runs/demo")) -> None:
    """Evaluate the bundled models on the guessing game and plot their answers.

    Args:
        out: folder for the report and the figures
    """
    with progress_bars() as show:
        found = demo.demo(out, progress=show)
    for model, content in found.reports.items():
        tables.print_modes(model, content)
    tables.print_files(found.files)


# --- train ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _TrainArguments:
    config: Config
    out: Path
    data: Path | None
    resume: bool


def train_command(arguments: list[str]) -> None:
    """Train the preset that the first argument names; the others override its values."""
    with _said_once():
        parsed = _parse_train(arguments)
    name, data = arguments[0], parsed.data
    quiet, began = distributed.global_rank() != 0, time.monotonic()
    with progress_bars(disable=quiet) as show:

        def on_record(record: LogRecord) -> None:
            note = (
                f"prior {record.prior:.3f}  reconstruction {record.reconstruction:.3f}  "
                f"commitment {record.commitment:.3f}  codes {record.codes}"
            )
            show(name, record.step, parsed.config.train.steps, note)

        folder = train.train(
            parsed.config,
            parsed.out,
            data=data,
            resume=parsed.resume,
            on_record=on_record,
            on_message=None if quiet else tables.print_note,
        )
    if not quiet:
        tables.print_file("trained", folder)
        tables.print_file("figure", folder / "figures" / "history.png")
        then = f"mue evaluate {folder}" + (f" --data {data} --split val" if data else "")
        memory = max((r.memory for r in read_log(folder)), default=0)
        took = f"in {time.monotonic() - began:.0f} s, peak memory {memory:,} MiB"
        tables.print_line(f"{took}; next: {then}")


def _parse_train(arguments: list[str]) -> _TrainArguments:
    """The preset's configuration with its overrides, and where to train it."""
    if not arguments or arguments[0].startswith("-"):
        asked = bool(arguments) and arguments[0] in ("-h", "--help")
        print(
            f"usage: mue train PRESET --out DIR [--seed N] [--resume] [overrides]\n\n"
            f"presets: {', '.join(PRESETS)}\n\n"
            "`mue train PRESET --help` lists what can be overridden.",
            file=sys.stdout if asked else sys.stderr,
        )
        sys.exit(0 if asked else 2)
    name, rest = arguments[0], arguments[1:]

    def chosen(preset_schedule: Schedule = "short") -> Schedule:
        return preset_schedule

    # the schedule decides what the other values default to, so it is parsed first
    schedule, _ = tyro.cli(chosen, args=rest, add_help=False, return_unknown_args=True)

    def parse(
        *,
        out: Path,
        data: Path | None = None,
        seed: int | None = None,
        resume: bool = False,
        preset_schedule: Schedule = schedule,
        config: Annotated[Config, arg(name="")] = preset(name, schedule),  # noqa: B008
    ) -> _TrainArguments:
        """Train a preset into a run folder.

        Args:
            out: the run folder; it must not exist yet, or be empty
            data: folder of prepared slices, for presets that learn from slices
            seed: of the weights and the data; short for --train.seed
            resume: continue from the last checkpoint in the folder
            preset_schedule: the preset's short schedule, or the paper's own
            config: what the preset says, value by value
        """
        del preset_schedule
        if seed is not None:
            config = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
        return _TrainArguments(config, out, data, resume)

    return tyro.cli(parse, args=rest, prog=f"mue train {name}")


# --- models ---------------------------------------------------------------------------------------


def evaluate_command(
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
    """Compare a model with known modes, or with raters; writes report-SPLIT.json.

    Args:
        data: folder of prepared slices, for a model trained on slices
        split: which part of the data
        inputs: how many inputs, where they are synthetic
        seed: of synthetic inputs, or of the samples of ged_n
        k: answers decoded for each synthetic input
        out: folder for the report (default: the run folder; runs/bundled/NAME if bundled)
        json: print the report alone, for machines
        device: where to compute
    """
    with progress_bars(disable=json) as show:
        found = evaluate.evaluate(
            model,
            data=data,
            split=split,
            inputs=inputs,
            seed=seed,
            k=k,
            out=out,
            device=device,
            progress=show,
        )
    if json:
        tables.print_json(found.report)
        return
    tables.print_evaluation(model, found.report, found.scores)
    tables.print_files(found.files)


def predict_command(
    model: _Model,
    images: Annotated[tuple[Path, ...], Positional, arg(metavar="IMAGE", help="image files")],
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
    found = predict.predict(model, images, k=k, merge=merge, out=out, device=device)
    if json:
        tables.print_json([p.summary() for p in found.predictions])
        return
    for prediction in found.predictions:
        tables.print_prediction(prediction)
    if out is not None:
        tables.print_file("answers", out)


def figure_command(
    models: _Models,
    /,
    data: Path | None = None,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    out: Path | None = None,
    device: Device = "auto",
) -> None:
    """Plot probabilities, answers and training history of one or several models.

    Args:
        data: folder of prepared slices, for models trained on slices
        split: which part of the data
        inputs: how many inputs, where they are synthetic
        seed: of synthetic inputs, or of the samples of ged_n
        out: folder for the figures (default: figures/ of the run folder, or of
            runs/bundled/NAME if bundled)
        device: where to compute
    """
    with progress_bars() as show:
        found = figure.figure(
            models,
            data=data,
            split=split,
            inputs=inputs,
            seed=seed,
            out=out,
            device=device,
            progress=show,
        )
    tables.print_files(found.files)


def compare_command(
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
    """Evaluate models on the same inputs; writes comparison.json and comparison.png.

    Args:
        data: folder of prepared slices, for models trained on slices
        split: which part of the data
        inputs: how many inputs, where they are synthetic
        seed: of synthetic inputs, and of samples
        samples: how many samples are taken of a model that samples
        out: folder for the comparison
        json: print the comparison alone, for machines
        device: where to compute
    """
    with progress_bars(disable=json) as show:
        found = compare.compare(
            models,
            data=data,
            split=split,
            inputs=inputs,
            seed=seed,
            samples=samples,
            out=out,
            device=device,
            progress=show,
        )
    if json:
        tables.print_json(found.report)
        return
    tables.print_comparison(found.models)
    tables.print_files(found.files)


def calibrate_command(
    model: _Model,
    out: _NewFolder,
    /,
    *,
    data: Path | None = None,
    inputs: int = 1000,
    seed: int = 0,
    half: bool = True,
    device: Device = "auto",
) -> None:
    """Fit a model's probabilities to the val split; writes the model to a new folder.

    Args:
        data: folder of prepared slices, for a model trained on slices
        inputs: how many inputs, where they are synthetic
        seed: of synthetic inputs
        half: write the model in half precision
        device: where to compute
    """
    with progress_bars() as show:
        found = calibrate.calibrate(
            model,
            out,
            data=data,
            inputs=inputs,
            seed=seed,
            half=half,
            device=device,
            progress=show,
        )
    c = found.calibration
    tables.print_line(
        f"temperature {c.temperature:.3f}; energy distance on val "
        f"{c.before:.4f} before, {c.after:.4f} after"
    )
    tables.print_file("written", found.folder)


def export_command(model: _Model, out: _NewFolder, /, half: bool = True) -> None:
    """Copy what inference needs, the network and its configuration, to a new folder.

    Args:
        half: in half precision
    """
    tables.print_file("exported", export.export(model, out, half=half).folder)


# --- data -----------------------------------------------------------------------------------------


def import_command(
    collection: Annotated[Literal["lidc"], Positional, arg(metavar="lidc", help="LIDC-IDRI")],
    sources: Annotated[
        tuple[Path, ...],
        Positional,
        arg(metavar="SOURCE", help="folders, archives or a pickle, all of one form"),
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
    from mue.commands.import_lidc import import_lidc  # imports pydicom, which is slow

    with progress_bars() as show:
        found = import_lidc(
            sources,
            out,
            size=size,
            window=window,
            skip_bad=skip_bad,
            progress=lambda n, total: show(collection, n >> 20, max(1, total >> 20), "MiB"),
        )
    for bad in found.rejected:
        tables.print_note(f"left out {bad.what}: {bad.why}")
    tables.print_counts(out, found.summary)
    if found.rejected:
        tables.print_line(f"{len(found.rejected)} left out, listed above")
    tables.print_file("prepared", out)


def inspect_command(
    data: Annotated[Path, Positional, arg(metavar="DIR", help="prepared slices")],
    /,
    out: Path | None = None,
    verify: bool = False,
) -> None:
    """Show what prepared slices hold: counts, splits, and a contact sheet.

    Args:
        out: the contact sheet (default: runs/DIR-sheet.png)
        verify: read everything and compare it with the digests from the import
    """
    found = inspect.inspect(data, out, verify=verify)
    tables.print_summary(data, found.summary)
    tables.print_file("sheet", found.files[0])


# --- the parser -----------------------------------------------------------------------------------


def _train_help(arguments: Positional[tuple[str, ...]] = ()) -> None:
    """Train a preset into a run folder: mue train PRESET --out DIR [--seed N] [--resume]."""
    train_command(list(arguments))


def _data_help(arguments: Positional[tuple[str, ...]] = ()) -> None:
    """Prepare slices or inspect them: mue data import lidc SOURCE --out DIR, mue data inspect."""
    _run(["data", *arguments])


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["train"]:  # has a parser for each preset
        train_command(arguments[1:])
    elif arguments[:1] == ["data"]:
        tyro.extras.subcommand_cli_from_dict(
            {"import": import_command, "inspect": inspect_command},
            prog="mue data",
            description="Prepare annotated slices, and inspect them.",
            args=arguments[1:],
        )
    else:
        tyro.extras.subcommand_cli_from_dict(
            {
                "demo": demo_command,
                "data": _data_help,
                "train": _train_help,
                "evaluate": evaluate_command,
                "predict": predict_command,
                "figure": figure_command,
                "compare": compare_command,
                "calibrate": calibrate_command,
                "export": export_command,
            },
            prog="mue",
            description="Ranked answers with probabilities, for problems with more than one. "
            "--version prints the version, --debug shows the traceback of an error.",
            args=arguments or ["--help"],
        )


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    What a user can mend is one sentence on stderr and exit code 2; any other exception is a defect
    and keeps its traceback. With --debug both do.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    if arguments == ["--version"]:
        print(f"mue {__version__}")
        return
    try:
        _run(arguments)
    except train.Interrupted as stop:
        _fail(f"{stop}; go on with --resume", 130, once=True)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except NonFiniteError as error:
        _fail(str(error), 1, once=True, debug=debug)
    except distributed.WorkerLostError as error:
        _fail(str(error), 1, debug=debug)
    except distributed.RemoteError as error:
        _fail(str(error), 2, once=True, debug=debug)
    except BrokenPipeError:  # the reader of our output has closed it
        sys.stderr.close()
    except OSError as error:
        if error.errno is None:  # not from the operating system
            raise
        _fail(f"{error.filename or 'a file'}: {error.strerror}", 2, debug=debug)
    except MueError as error:
        _fail(str(error), 2, debug=debug)


def _fail(sentence: str, code: int, *, once: bool = False, debug: bool = False) -> NoReturn:
    """Exit with a sentence. Of several processes that all know it, the first prints it."""
    if once and distributed.global_rank() != 0:
        _exit_quietly(code)
    if debug:
        traceback.print_exc()
    print(f"mue: {sentence}", file=sys.stderr)
    sys.exit(code)


def _exit_quietly(code: int) -> NoReturn:
    """Exit after another process has said why: `torchrun` ends all as soon as one has exited."""
    time.sleep(_PATIENCE)
    sys.exit(code)


@contextlib.contextmanager
def _said_once() -> Iterator[None]:
    """Let one process of a machine report what is wrong with arguments that all were given."""
    if distributed.local_rank() == 0:
        yield
        return
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            yield
        except MueError:
            _exit_quietly(2)
        except SystemExit as stop:
            _exit_quietly(2 if stop.code else 0)
