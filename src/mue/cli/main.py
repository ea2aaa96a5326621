"""The command line: every command is the public function of its name, parsed, called, printed."""

import contextlib
import dataclasses
import functools
import io
import json
import logging
import os
import re
import sys
import time
import traceback
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import tyro
from tyro.conf import Positional, arg

from mue.cli import tables
from mue.cli.progress import progress_bars
from mue.commands import train
from mue.commands.auto import auto
from mue.commands.calibrate import calibrate
from mue.commands.compare import compare
from mue.commands.demo import demo
from mue.commands.evaluate import evaluate
from mue.commands.export import export
from mue.commands.export_folder import export_folder
from mue.commands.figure import figure
from mue.commands.import_folder import import_folder
from mue.commands.import_lidc import import_lidc
from mue.commands.inspect import inspect
from mue.commands.models import Model
from mue.commands.new import new
from mue.commands.paths import Paths
from mue.commands.predict import Format, predict
from mue.commands.serve import serve
from mue.config.auto import EXAMPLE, Choice, choose
from mue.config.presets import PRESETS, Baseline, Schedule, preset
from mue.config.schema import Config
from mue.errors import MueError, printable
from mue.runs.folder import CONFIG, HEALTH, load_config
from mue.runs.log import (
    LogRecord,
    NonFiniteError,
    ValidationRecord,
    best_validation,
    read_log,
    read_validations,
)
from mue.runtime.atomic import check_folder
from mue.runtime.devices import Device, is_out_of_memory
from mue.runtime.signals import handled, interrupt
from mue.training import distributed
from mue.version import __version__

AUTO = "auto"
"""In place of a preset: chosen from the data."""
Parsed = TypeVar("Parsed")
_NO_MEMORY = (
    "memory ran out: name smaller inputs or fewer of them at once, end other programs, or take a "
    "machine with more"
)
_PATIENCE = 1.0  # seconds that a process waits for the one that says what is wrong
_COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "data new": new,
    "data import folder": import_folder,
    "data import lidc": import_lidc,
    "data inspect": inspect,
    "data export": export_folder,
    "train": train.train,
    "evaluate": evaluate,
    "predict": predict,
    "figure": figure,
    "compare": compare,
    "calibrate": calibrate,
    "export": export,
    "serve": serve,
}
_PARSED: dict[Any, Any] = {
    Model: str,
    str | Path: str,
    str | Path | None: str | None,
    Sequence[Model]: tuple[str, ...],
    Model | Sequence[Model]: tuple[str, ...],
    Paths: tuple[str, ...],
    Sequence[str]: tuple[str, ...],
    Sequence[int]: tuple[int, ...],
    Sequence[Format]: tuple[Format, ...],
}
"""How a type is parsed of which Python callers have a choice."""


def _run(arguments: list[str]) -> None:
    """Run the command that the first words name; without one, list the commands."""
    if arguments == ["--version"]:
        print(f"mue {__version__}")
        return
    for name, verb in _COMMANDS.items():
        words = name.split()
        if arguments[: len(words)] == words:
            command = train_command if name == "train" else functools.partial(_call, verb)
            command(arguments[len(words) :], f"mue {name}")
            return
    group = "data " if arguments[:1] == ["data"] else ""
    listed = {
        name.removeprefix(group): dataclasses.make_dataclass(
            "command", [], namespace={"__doc__": (verb.__doc__ or "").partition("\n\n")[0]}
        )
        for name, verb in _COMMANDS.items()
        if name.startswith(group)
    }
    prog = f"mue {group}".strip()
    _parse(
        prog,
        lambda: tyro.extras.subcommand_cli_from_dict(
            listed,
            prog=prog,
            description="Ranked answers with probabilities, for problems with more than one. "
            "--version prints the version, --debug shows the traceback of an error.",
            args=(arguments[1:] if group else arguments) if arguments else ["--help"],
        ),
    )


def _parse(prog: str, parse: Callable[[], Parsed]) -> Parsed:
    """Let tyro parse. What it says of a wrong argument, in a box of many lines, is one sentence."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parse()
    except SystemExit as stop:
        if not stop.code:
            raise
        lines = [line.strip("│╰╯ ") for line in said.getvalue().splitlines()[1:]]  # after the title
        rules = [i for i, line in enumerate(lines) if set(line) <= {"─", "-"}]
        first = 1 if rules[:1] == [0] else 0  # one below the title, in ASCII
        sentence = " ".join(lines[first : rules[first]])
        sentence = re.sub(r"^Error parsing config(\.\w+)*: ", "", sentence)
        if "Perhaps you meant:" in lines:
            name = lines[lines.index("Perhaps you meant:") + 1].split()[0]
            sentence += f"; did you mean {name}?"
        raise MueError(f"{sentence.rstrip('.')}; see `{prog} --help`") from None


def _call(verb: Callable[..., Any], arguments: list[str], prog: str) -> None:
    """Parse the arguments of a public function by its signature and docstring, call it, print.

    Required parameters before `*` are positional, all others are flags. `progress` is a bar, and a
    result that has a `report` can be printed as JSON.
    """
    hints, parameters = typing.get_type_hints(verb), dict(signature(verb).parameters)
    bars = parameters.pop("progress", None) is not None
    fields: list[tuple[str, Any, Any]] = []
    for name, p in parameters.items():
        parsed, required = _PARSED.get(hint := hints[name], hint), p.default is p.empty
        if required and p.kind is p.POSITIONAL_OR_KEYWORD:
            parsed = Annotated[parsed, Positional, arg(metavar=name.upper().removesuffix("S"))]
        elif Path in typing.get_args(hint):
            parsed = Annotated[parsed, arg(metavar="PATH")]
        default = dataclasses.MISSING if required else p.default
        fields.append((name, parsed, dataclasses.field(default=default)))
    if hasattr(hints["return"], "report"):
        flag = Annotated[bool, arg(help="Print the report alone, as JSON.")]
        fields.append(("json", flag, dataclasses.field(default=False)))
    form = dataclasses.make_dataclass(
        verb.__name__, fields, kw_only=True, namespace={"__doc__": verb.__doc__}
    )
    values = vars(_parse(prog, lambda: tyro.cli(form, prog=prog, args=arguments)))
    as_json = values.pop("json", False)
    ending = () if verb is serve else ("SIGTERM", "SIGHUP")  # a server ends by itself
    with (
        handled(ending, interrupt),
        progress_bars(disable=as_json or distributed.env_int("RANK", 0) != 0) as show,
    ):
        result = verb(**values, **({"progress": show} if bars else {}))
    if as_json:
        print(json.dumps(result.report, indent=2))
    else:
        tables.print_result(result)


def train_command(arguments: list[str], prog: str) -> None:
    """Train the preset that the first argument names; the others override its values."""
    with _said_once():
        start = _parse_train(arguments, prog)
    name, data = arguments[0], start.keywords["data"]
    config: Config = start.keywords["config"]
    quiet, began = distributed.env_int("RANK", 0) != 0, time.monotonic()
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

        folder = start(
            on_record=on_record,
            on_validation=on_validation,
            on_message=None if quiet else tables.print_note,
        )
    if not quiet:
        tables.print_file("trained", folder)
        tables.print_file("figure", folder / "figures" / "history.png")
        held_back = (report := folder / HEALTH).exists()
        then = f"mue evaluate {folder}" + f" --data {data}" * bool(data)
        then += " --split val" * bool(data and held_back)
        memory = max((r.memory for r in read_log(folder)), default=0)
        took = f"in {time.monotonic() - began:.0f} s, peak memory {memory:,} MiB"
        tables.print_line(f"{took}; next: {then}")
        if held_back:
            content = json.loads(report.read_text())
            tables.print_health(content)
            tables.print_shares(content["codes"])
            if content["codes"]:
                tables.print_file("figure", folder / "figures" / "health.png")
        masks = config.method in ("vq", "exact") and config.objective.likelihood != "normal"
        if masks and held_back and not config.train.calibrate:
            command = f"mue calibrate {folder} {folder}-calibrated" + (
                f" --data {data}" * bool(data)
            )
            tables.print_line(f"to fit its probabilities to inputs not trained on: {command}")


def _parse_train(arguments: list[str], prog: str) -> functools.partial[Path]:
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

    def chosen(preset_schedule: Schedule = "short") -> Schedule:
        return preset_schedule

    # the schedule decides what the other values default to, so it is parsed first
    prog = f"{prog} {name}"
    schedule, _ = _parse(
        prog, lambda: tyro.cli(chosen, args=rest, add_help=False, return_unknown_args=True)
    )
    choice = _choice(rest, prog) if name == AUTO else Choice(preset(name, schedule), {})

    def parse(
        *,
        out: Path,
        data: Path | None = None,
        seed: int | None = None,
        resume: bool = False,
        minutes: float | None = None,
        baseline: Baseline | None = None,
        preset_schedule: Schedule = schedule,
        config: Annotated[Config, arg(name="")] = choice.config,
    ) -> functools.partial[Path]:
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

    return _parse(prog, lambda: tyro.cli(parse, args=rest, prog=prog))


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
        train.check_run_folder(out, resume=resume)
        check_folder(out)
        return auto(data, minutes=minutes, steps=steps, baseline=baseline, device=device)

    return _parse(
        prog, lambda: tyro.cli(peek, args=arguments, add_help=False, return_unknown_args=True)
    )[0]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    What a user can correct is one sentence on stderr and exit code 2; any other exception is a
    defect and keeps its traceback. With --debug both do.
    """
    called, arguments = arguments is None, sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    if called and not debug:  # what libraries say meanwhile is for developers
        warnings.simplefilter("ignore")
        logging.getLogger().addHandler(logging.NullHandler())
        logging.getLogger("nibabel.global").setLevel(
            logging.CRITICAL
        )  # it has a handler of its own
    arguments = [a for a in arguments if a != "--debug"]
    try:
        with contextlib.redirect_stdout(_StandardOutput(sys.stdout)) as output:
            try:
                _run(arguments)
            finally:
                output.flush()
    except train.Interrupted as stop:
        _fail(f"{stop}; continue with --resume", 130, once=True)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except (NonFiniteError, distributed.WorkerLostError) as error:
        _fail(str(error), 1, once=isinstance(error, NonFiniteError), debug=debug)
    except BrokenPipeError:  # the reader of our output has closed it
        sys.stderr.close()
    except OSError as error:
        if error.errno is None:  # not from the operating system
            raise
        if is_out_of_memory(error) and not error.filename:
            _fail(_NO_MEMORY, 2, debug=debug)
        _fail(f"{error.filename or 'a file'}: {error.strerror}", 2, debug=debug)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _fail(_NO_MEMORY, 2, debug=debug)
    except MueError as error:
        _fail(str(error), 2, once=isinstance(error, distributed.RemoteError), debug=debug)


class _StandardOutput(io.TextIOBase):
    """Standard output, which an error of writing to it names."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Write text, or name what could not be written to."""
        with self._named():
            return self._stream.write(text)

    def flush(self) -> None:
        """Write what is still held back."""
        with self._named():
            self._stream.flush()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The number of the file, where it has one."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How text becomes bytes."""
        return self._stream.encoding

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = "standard output"
            with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())  # Python flushes when it ends
            raise


def _fail(sentence: str, code: int, *, once: bool = False, debug: bool = False) -> NoReturn:
    """Exit with a sentence. Of several processes that all know it, the first prints it."""
    if once and distributed.env_int("RANK", 0) != 0:
        _exit_quietly(code)
    if debug:
        traceback.print_exc()
    print(f"mue: {printable(sentence)}", file=sys.stderr)
    sys.exit(code)


def _exit_quietly(code: int) -> NoReturn:
    """Exit after another process has said why: `torchrun` ends all as soon as one has exited."""
    time.sleep(_PATIENCE)
    sys.exit(code)


@contextlib.contextmanager
def _said_once() -> Iterator[None]:
    """Let one process of a machine report what is wrong with arguments that all were given."""
    if distributed.env_int("LOCAL_RANK", 0) == 0:
        yield
        return
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            yield
        except MueError:
            _exit_quietly(2)
        except SystemExit as stop:
            _exit_quietly(2 if stop.code else 0)
