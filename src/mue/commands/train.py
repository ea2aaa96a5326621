"""Train a model into a run folder: `mue train`."""

import contextlib
import copy
import dataclasses
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sized
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch
from torch import nn

from mue.acceleration import accelerated
from mue.commands.calibrate import INPUTS, calibrate_predictor, check_images
from mue.commands.report import save_report
from mue.config.schema import Config
from mue.data.build import build_source, check_data, check_shapes
from mue.data.prefetch import no_prefetching
from mue.data.prepared.open import open_prepared, verify_prepared
from mue.data.source import Source
from mue.errors import MueError
from mue.evaluation.health import HealthReport, health
from mue.evaluation.validation import predictor_of, validate, validation_source
from mue.inference.load import load
from mue.models.learner import Learner
from mue.nn.backbone import Backbone
from mue.runs.folder import (
    CONFIG,
    FIGURES,
    HEALTH,
    STATE,
    WEIGHTS,
    RunError,
    load_config,
    origin,
    save_config,
)
from mue.runs.log import (
    LOG,
    LogRecord,
    NonFiniteError,
    ValidationRecord,
    best_validation,
    log_writer,
    read_log,
    read_validations,
    trim_log,
)
from mue.runs.weights import export_run
from mue.runtime import collectives
from mue.runtime.atomic import UNFINISHED, check_folder, locked
from mue.runtime.devices import choose_device, is_out_of_memory
from mue.runtime.signals import handled
from mue.training import distributed
from mue.training.batches import batch_threads
from mue.training.checkpoint import load_state_, restore_weights, save_state
from mue.training.loop import fit
from mue.training.measure import measure
from mue.training.rendezvous import rendezvous
from mue.training.state import Best, Training, seeded_learner
from mue.version import __version__

_OWN = "own"
"""What config.json says in place of the name of a data set or a backbone of one's own."""


@dataclass(frozen=True, slots=True)
class TrainResult(PathLike[str]):
    """A trained model: wherever a model is asked for, this may be given.

    Attributes:
        folder: The run folder.
        files: The files in it that this training wrote; in a process other than the first, none.
        best: The validation whose weights are exported; None without one: they are the last.
        health: What is wrong with the model; None where no inputs were held back from training.
        notes: How it was computed, why it stopped, what was calibrated, a line for each.
    """

    folder: Path
    files: tuple[Path, ...] = ()
    best: ValidationRecord | None = None
    health: HealthReport | None = None
    notes: tuple[str, ...] = ()

    def __fspath__(self) -> str:
        """The run folder."""
        return str(self.folder)


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop and has saved its state."""


def train(
    config: Config,
    out: str | Path,
    *,
    data: str | Path | None = None,
    source: Source | None = None,
    validation: Source | None = None,
    backbone: Backbone | None = None,
    learner: Learner | None = None,
    resume: bool = False,
    reasons: Mapping[str, str] | None = None,
    on_record: Callable[[LogRecord], None] | None = None,
    on_validation: Callable[[ValidationRecord], None] | None = None,
    on_message: Callable[[str], None] | None = None,
) -> TrainResult:
    """Train a model into a run folder, plot its history, and judge its health.

    Args:
        config: Everything the run depends on.
        out: The run folder, which must be empty or not exist yet.
        data: A folder of prepared slices, where `config.data` reads one.
        source: A data set of your own, in place of the one that `config.data` names.
        validation: With `source`: inputs that it does not hold, for `train.validate_every`,
            `train.calibrate` and the health report.
        backbone: An encoder and a decoder of your own, in place of `config.model.backbone`.
        learner: A learner of your own, an `nn.Module` with its network, in place of what
            `config.method` and `config.model` would build.
        resume: Continue from the last checkpoint of `out`. On a CPU the weights end equal, to the
            bit, to those of a run without the stop.
        reasons: Why the configuration is as it is (`mue.auto`): said, and written to config.json.
        on_record: Called with the record of each step that is logged.
        on_validation: Called with the record of each validation.
        on_message: Called with a line of text: how it is computed, why it stopped, what was
            calibrated.

    Returns:
        The run folder, its files, and what is known of the model. Its weights are the best by
        validation, or the last without one. Where a part is your own, its config.json says `own`
        in place of its name, and `mue.load(folder, network=...)` loads it.

    Raises:
        RunError: The folder is not empty, or holds a run of another configuration.
        NonFiniteError: The loss is not finite any more; it names the last good checkpoint.
        Interrupted: SIGINT, SIGTERM or SIGHUP came, to any process; the state has been saved.
        RemoteError: Another process failed, or has another configuration.
        WorkerLostError: Another process is gone.
    """
    folder = Path(out)
    if source is not None:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, name=_OWN))
    if backbone is not None or learner is not None:
        model = dataclasses.replace(config.model, backbone=_OWN)
        config = dataclasses.replace(config, model=model)
    group, notes, found = rendezvous(), list[str](), None
    with contextlib.ExitStack() as held:
        try:
            with group.all_or_none():
                device, source = _source(config, data, source)
                if data is not None:
                    verify_prepared(data)
                digest = None if data is None else open_prepared(data).digest
                learner = _complete(
                    seeded_learner(config, backbone) if learner is None else learner
                )
                first = torch.tensor([0])
                check_shapes(config, source.pair(first), learner.network.axes)
                given, validation = validation, _validation(config, data, device, validation)
                if given is not None:
                    check_shapes(config, given.case(first), learner.network.axes)
                if config.train.calibrate:
                    check_images(learner.network.axes)
            facts = {"mue": __version__, "torch": torch.__version__, "device": device.type}
            facts |= {"--data": digest, "--resume": resume, **dict(_values(config))}
            group.require_equal(facts, "start all with the same command, data and versions")
            group.init_process_group_(device)
            with group.all_or_none():
                _check(folder, config, digest, resume=resume)
                check_folder(folder)
                check_folder(folder / FIGURES)
                training = accelerated(Training(config, device, learner=learner), config.compute)
            with group.all_or_none():
                if group.rank == 0:
                    held.enter_context(locked(folder))
                    if not _check(folder, config, digest, resume=resume):  # again, now alone in it
                        save_config(folder, config, __version__, digest, reasons)
                if resume and (folder / STATE).exists():
                    load_state_(folder, training)
                    if group.rank == 0:
                        restore_weights(folder, training)
                past = trim_log(folder, training.step)

            def say(line: str) -> None:
                notes.append(line)
                if on_message is not None:
                    on_message(line)

            for name, why in (reasons or {}).items():
                say(f"{name:<21}{why}")
            for line in (f"computing on {device.type}: {training.notes[0]}", *training.notes[1:]):
                say(line)
            where = f"{folder} must be on a file system that all processes share"
            group.require_equal({"step": training.step}, where)
            with (
                distributed.explain_lost_worker(),
                _explain_out_of_memory(config, folder),
                batch_threads(config, source),
            ):
                _loop(training, source, validation, folder, past, on_record, on_validation)
        finally:
            distributed.shutdown_()
        if group.rank == 0:
            if training.best is not None:
                say(_outcome(training, training.best))
            if config.train.calibrate:
                own = validation if config.data.name == _OWN else None
                with no_prefetching():
                    say(_calibrate_(folder, training, data, own))
            from mue.plots.history import plot_history
            from mue.plots.style import save_figure

            title = f"{config.method} on {config.data.name}, seed {config.train.seed}"
            figure = plot_history(read_log(folder), title, read_validations(folder))
            files = [folder / name for name in (CONFIG, WEIGHTS, STATE, LOG)]
            files.append(save_figure(figure, folder / FIGURES / "history.png"))
            if validation is not None:
                with no_prefetching():
                    found = _judge(folder, training, source, validation)
                files += _save_judged(folder, found, title)
            else:
                say("there is no health report: no inputs were held back from training")
            best = best_validation(records) if (records := read_validations(folder)) else None
            return TrainResult(folder, tuple(files), best, found, tuple(notes))
    return TrainResult(folder, notes=tuple(notes))


def _source(
    config: Config, data: str | Path | None, source: Source | None
) -> tuple[torch.device, Source]:
    """The device to train on and the data set, which must be on it."""
    if source is None:
        check_data(config.data, data)
        device = choose_device(config.compute.device, collectives.env_int("LOCAL_RANK", 0))
        seed, resident = config.train.seed, config.compute.resident
        return device, build_source(
            config.data, "train", seed=seed, device=device, data=data, resident=resident
        )
    if data is not None:
        raise MueError(f"`data` must be left out where `source` is given, got {data}")
    if config.compute.device not in ("auto", source.device.type):
        raise MueError(
            f"`source` must be on compute.device, {config.compute.device}, got one on "
            f"{source.device}; build it there, or take compute.device auto"
        )
    return source.device, source


def _validation(
    config: Config, data: str | Path | None, device: torch.device, given: Source | None
) -> Source | None:
    """Inputs that are not trained on, to validate, calibrate and judge the model with.

    None where there are no such inputs and neither validation nor calibration asks for them.
    """
    t, own = config.train, config.data.name == _OWN
    if given is not None and not own:
        raise MueError(
            "`validation` must be left out without `source`: inputs to validate the data "
            f"{config.data.name!r} with are those of their val split"
        )
    if given is not None and isinstance(given, Sized) and not len(given):
        raise MueError("`validation` must hold at least one input, got none")
    needed = t.validate_every or t.calibrate
    if own and given is None:
        if not needed:
            return None
        raise MueError(
            "`validation` must be a Source with inputs that `source` does not hold, for "
            f"train.validate_every {t.validate_every} and train.calibrate {t.calibrate}; "
            f"give one, or train without by {_without_validation(config)}"
        )
    try:
        return given or validation_source(config, data, device)
    except MueError as error:
        if not needed:
            return None
        raise MueError(f"{error}; to train without take {_without_validation(config)}") from None


def _without_validation(config: Config) -> str:
    """The options that turn off what asks for inputs that are held back."""
    t = config.train
    options = {
        "--train.validate-every 0": t.validate_every,
        "--train.patience 0": t.patience,
        "--train.no-calibrate": t.calibrate,
    }
    return " ".join(option for option, value in options.items() if value)


def _complete(learner: Learner) -> Learner:
    """A learner whose network is saved completely: only parameters are averaged and exported."""
    network = learner.network
    if not (isinstance(learner, nn.Module) and isinstance(network, nn.Module)):
        raise MueError(f"a learner and its network must be nn.Modules, got {type(learner)}")
    if buffers := [name for name, _ in network.named_buffers()]:
        raise MueError(
            f"a network must keep its state in parameters, got the buffer {buffers[0]!r}; "
            "take a normalization without running statistics, such as GroupNorm"
        )
    return learner


def check_run_folder(folder: Path, *, resume: bool) -> bool:
    """Refuse a folder that a run cannot take. Whether it holds a run already.

    A run that ended before its first checkpoint has nothing to lose: another may take its place.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} must be a folder to write a run to, and it is a file")
    names = {p.name for p in folder.iterdir()} if folder.is_dir() else set[str]()
    names = {name for name in names if not name.startswith(UNFINISHED)}
    if CONFIG in names and names <= {CONFIG, LOG, "tensorboard"}:
        load_config(folder)  # refuses one that is not of a run
        return False
    occupied = bool(names)
    if occupied and not resume:
        raise RunError(
            f"{folder} must be empty or not exist yet, and it holds files; "
            "name another folder, or go on with --resume"
        )
    return occupied


def _check(folder: Path, config: Config, digest: str | None, *, resume: bool) -> bool:
    """Refuse a folder that this run cannot take. Whether it holds this run already."""
    occupied = check_run_folder(folder, resume=resume)
    if occupied:
        if (folder / WEIGHTS).exists() and not (folder / STATE).exists():
            load_config(folder)  # refuses one that is not of a run
            raise RunError(
                f"{folder} must hold {STATE} to be resumed, and it holds weights without: as "
                "`mue calibrate` and `mue export` write them; resume the run they are of, or train "
                "into another folder"
            )
        theirs = dict(_values(load_config(folder)))
        trained = origin(folder)
        theirs["--data"] = trained["data"]
        ours = {**dict(_values(config)), "--data": digest}
        free = ("compute.", "modes.") if "calibration" in trained else ("compute.",)
        for name, value in theirs.items():
            if not name.startswith(free) and ours[name] != value:
                raise RunError(
                    f"{folder} holds a run with {name} = {value}, and {ours[name]} is asked for: "
                    "resume with the run's own configuration and data, or start in another folder"
                )
    return occupied


def _values(section: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a configuration, by its name on the command line."""
    for field in dataclasses.fields(section):
        name, value = f"{prefix}{field.name}", getattr(section, field.name)
        yield from (
            _values(value, f"{name}.") if dataclasses.is_dataclass(value) else [(name, value)]
        )


def _loop(
    training: Training,
    source: Source,
    validation: Source | None,
    folder: Path,
    past: float,
    on_record: Callable[[LogRecord], None] | None,
    on_validation: Callable[[ValidationRecord], None] | None,
) -> None:
    """Take the steps; log, validate, save and stop where that is due."""
    t, writer, best = training.config.train, collectives.rank() == 0, training.best
    began, first = time.monotonic() - past, training.step + 1
    if training.out_of_patience:
        return
    asked: list[int] = []
    with (
        log_writer(folder) if writer else contextlib.nullcontext() as log,
        contextlib.ExitStack() as armed,
    ):
        for step in fit(training, source):
            if step.number == first:  # before it there is nothing to save, and compiling takes long
                armed.enter_context(_interrupts(asked))
            last = step.number == t.steps
            stop = distributed.any_process(bool(asked))
            if step.number == first:
                distributed.shorten_timeout_()
            saving = last or step.number % t.save_every == 0 or stop
            validating = best is not None and (last or step.number % t.validate_every == 0)
            if saving or validating or step.number % t.log_every == 0:
                try:
                    record = measure(step, time.monotonic() - began)
                except NonFiniteError as error:
                    good = "there is no checkpoint before it"
                    if (state := folder / STATE).exists():
                        good = f"the last good checkpoint is {state}"
                    remedy = "start in another folder with a lower train.lr"
                    raise NonFiniteError(f"{error}; {good}; {remedy}") from None
                if log is not None:
                    log(record)
                if on_record is not None:
                    on_record(record)
            if best is not None and validation is not None and validating:
                with distributed.long_timeout(), no_prefetching():
                    found = validate(training, source, validation)
                best.update_(found.score, step.number, training.ema)
                if training.out_of_patience and not last:
                    found, saving = dataclasses.replace(found, stopped=True), True
                if log is not None:
                    log(found)
                if on_validation is not None:
                    on_validation(found)
            if saving and writer:
                save_state(folder, training)
            if training.out_of_patience:
                return
            if stop and not last:
                distributed.any_process(
                    False
                )  # waits until it is saved: `torchrun` ends all when one has ended
                raise Interrupted(f"stopped at step {step.number}, saved in {folder}")


def _outcome(training: Training, best: Best) -> str:
    """Which weights are exported, and why training stopped early if it did."""
    t, end = training.config.train, ""
    if training.step < t.steps:
        end = f"stopped at step {training.step}: {t.patience} validations without a better one; "
    return f"{end}the weights are those of step {best.step}, the best by validation"


def _calibrate_(
    folder: Path, training: Training, data: str | Path | None, source: Source | None
) -> str:
    """Calibrate the exported weights where they are; returns what it changed.

    It starts from the weights in memory, so that it may be repeated after a kill.
    """
    predictor = predictor_of(training, training.export())
    inputs = len(source) if isinstance(source, Sized) else INPUTS
    found = calibrate_predictor(predictor, data, source=source, inputs=inputs)
    export_run(folder, folder, half=False, changed=found.weights, about=found.about)
    c = found.calibration
    change = f"energy distance {c.before:.4f} before, {c.after:.4f} after"
    return f"calibrated on val: temperature {c.temperature:.3f}, {change}"


def _judge(folder: Path, training: Training, source: Source, validation: Source) -> HealthReport:
    """The health of the exported model."""
    network = cast("Any", copy.deepcopy(training.network))
    predictor = load(folder, network=network, device=training.device, half=False, accelerate=False)
    inputs = training.config.train.validate_inputs
    return health(predictor, validation, train=source, inputs=inputs)


def _save_judged(folder: Path, found: HealthReport, title: str) -> list[Path]:
    """Write the health report and, of a model with codes, its figure."""
    from mue.plots.health import save_health

    report = save_report(folder / HEALTH, found.report())
    return [report, *save_health(found, folder / FIGURES / "health.png", title)]


@contextlib.contextmanager
def _explain_out_of_memory(config: Config, folder: Path) -> Generator[None]:
    """Turn running out of memory into one sentence with the remedy."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        batch, parts = config.train.batch, config.compute.accumulate
        saved = (folder / STATE).exists()  # a run keeps its batch
        raise RunError(
            f"memory ran out: a step of {batch} inputs in {parts} part(s) is too large for it; "
            f"{'go on with --resume and' if saved else 'take'} --compute.accumulate {2 * parts} "
            "(the same gradient in less memory) or --compute.checkpointing"
            + ("" if saved else ", or a smaller --train.batch")
        ) from error


@contextlib.contextmanager
def _interrupts(asked: list[int]) -> Generator[None]:
    """Note SIGINT, SIGTERM and SIGHUP in a list: a step is finished before the run stops."""

    def note(number: int, _: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1 and collectives.world() == 1:  # who asks twice does not want to wait
            raise KeyboardInterrupt

    with handled(("SIGINT", "SIGTERM", "SIGHUP"), note):
        yield
