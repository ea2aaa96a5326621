"""A training in its run folder: checks of the folder, resuming, log, saving, interrupts."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from mue.config.schema import Config
from mue.data.prefetch import no_prefetching
from mue.data.source import Source
from mue.runs.folder import (
    STATE,
    WEIGHTS,
    RunError,
    check_run_folder,
    load_config,
    origin,
    save_config,
)
from mue.runs.log import LogRecord, NonFiniteError, ValidationRecord, log_writer, trim_log
from mue.runtime import collectives
from mue.runtime.atomic import locked
from mue.runtime.devices import is_out_of_memory
from mue.runtime.signals import Interrupted, handled
from mue.training import distributed
from mue.training.batches import batch_threads
from mue.training.checkpoint import load_state_, restore_weights, save_state
from mue.training.loop import fit
from mue.training.measure import measure
from mue.training.rendezvous import Rendezvous
from mue.training.state import Training
from mue.version import __version__


def check_run(folder: Path, config: Config, digest: str | None, *, resume: bool) -> bool:
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
        theirs = dict(values_of(load_config(folder)))
        trained = origin(folder)
        theirs["--data"] = trained["data"]
        ours = {**dict(values_of(config)), "--data": digest}
        free = ("compute.", "modes.") if "calibration" in trained else ("compute.",)
        for name, value in theirs.items():
            if not name.startswith(free) and ours[name] != value:
                raise RunError(
                    f"{folder} holds a run with {name} = {value}, and {ours[name]} is asked for: "
                    "resume with the run's own configuration and data, or start in another folder"
                )
    return occupied


def values_of(section: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a configuration, by its name on the command line."""
    for field in dataclasses.fields(section):
        name, value = f"{prefix}{field.name}", getattr(section, field.name)
        yield from (
            values_of(value, f"{name}.") if dataclasses.is_dataclass(value) else [(name, value)]
        )


def require_same_run(
    group: Rendezvous, config: Config, device: torch.device, digest: str | None, *, resume: bool
) -> None:
    """Refuse processes that were started with another command, data or version."""
    facts = {"mue": __version__, "torch": torch.__version__, "device": device.type}
    facts |= {"--data": digest, "--resume": resume, **dict(values_of(config))}
    group.require_equal(facts, "start all with the same command, data and versions")


@contextlib.contextmanager
def open_run(
    training: Training,
    folder: Path,
    group: Rendezvous,
    *,
    digest: str | None = None,
    reasons: Mapping[str, str] | None = None,
    resume: bool = False,
) -> Generator[float]:
    """Begin a run, or put `training` where it was; yields the seconds that it took until then.

    The folder is locked within the block: no other run writes to it.
    """
    config = training.config
    with contextlib.ExitStack() as held:
        with group.all_or_none():
            if group.rank == 0:
                held.enter_context(locked(folder))
                if not check_run(folder, config, digest, resume=resume):  # again, now alone in it
                    save_config(folder, config, __version__, digest, reasons)
            if resume and (folder / STATE).exists():
                load_state_(folder, training)
                if group.rank == 0:
                    restore_weights(folder, training)
            past = trim_log(folder, training.step)
        where = f"{folder} must be on a file system that all processes share"
        group.require_equal({"step": training.step}, where)
        yield past


def take_steps(
    training: Training,
    source: Source,
    folder: Path,
    past: float,
    *,
    validate: Callable[[], ValidationRecord] | None = None,
    on_record: Callable[[LogRecord], None] | None = None,
    on_validation: Callable[[ValidationRecord], None] | None = None,
) -> None:
    """Take the steps; log, validate, save and stop where that is due.

    `past` is how many seconds the run took before, and `validate` measures the training as it is.

    Raises:
        NonFiniteError: The loss is not finite any more; it names the last good checkpoint.
        Interrupted: SIGINT, SIGTERM or SIGHUP came, to any process; the state has been saved.
    """
    t, writer, best = training.config.train, collectives.rank() == 0, training.best
    began, first = time.monotonic() - past, training.step + 1
    if training.out_of_patience:
        return
    asked: list[int] = []
    with (
        distributed.explain_lost_worker(),
        _explain_out_of_memory(training.config, folder),
        _explain_non_finite(folder),
        batch_threads(training.config, source),
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
                record = measure(step, time.monotonic() - began)
                if log is not None:
                    log(record)
                if on_record is not None:
                    on_record(record)
            if best is not None and validate is not None and validating:
                with distributed.long_timeout(), no_prefetching():
                    found = validate()
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
                distributed.any_process(False)  # waits until it is saved: one that ends, ends all
                raise Interrupted(f"stopped at step {step.number}, saved in {folder}")


@contextlib.contextmanager
def _explain_non_finite(folder: Path) -> Generator[None]:
    """Say of a loss that is not finite where to start from again."""
    try:
        yield
    except NonFiniteError as error:
        good = "there is no checkpoint before it"
        if (state := folder / STATE).exists():
            good = f"the last good checkpoint is {state}"
        remedy = "start in another folder with a lower train.lr"
        raise NonFiniteError(f"{error}; {good}; {remedy}") from None


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
