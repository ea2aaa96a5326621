"""Train a model into a run folder: `mue train`."""

import contextlib
import copy
import functools
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

from mue.acceleration import accelerated
from mue.commands.calibrate import INPUTS, calibrate_predictor, check_images
from mue.commands.report import save_report
from mue.config.schema import Config
from mue.data.prefetch import no_prefetching
from mue.data.source import Source
from mue.evaluation.health import HealthReport, health
from mue.evaluation.validation import predictor_of, validate
from mue.inference.load import load
from mue.models.learner import Learner
from mue.nn.backbone import Backbone
from mue.runs.folder import CONFIG, FIGURES, HEALTH, STATE, WEIGHTS
from mue.runs.log import (
    LOG,
    LogRecord,
    ValidationRecord,
    best_validation,
    read_log,
    read_validations,
)
from mue.runs.weights import export_run
from mue.runtime.atomic import check_folder
from mue.training.distributed import shutdown_
from mue.training.parts import OWN, find_parts
from mue.training.rendezvous import rendezvous
from mue.training.run import check_run, open_run, require_same_run, take_steps
from mue.training.state import Best, Training


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
    group, notes, found = rendezvous(), list[str](), None
    with contextlib.ExitStack() as held:
        try:
            with group.all_or_none():
                parts = find_parts(config, data, source, validation, backbone, learner)
                if config.train.calibrate:
                    check_images(parts.learner.network.axes)
            config, device, digest = parts.config, parts.device, parts.digest
            source, validation = parts.source, parts.validation
            require_same_run(group, config, device, digest, resume=resume)
            group.init_process_group_(device)
            with group.all_or_none():
                check_run(folder, config, digest, resume=resume)
                check_folder(folder)
                check_folder(folder / FIGURES)
                training = accelerated(
                    Training(config, device, learner=parts.learner), config.compute
                )
            run = open_run(training, folder, group, digest=digest, reasons=reasons, resume=resume)
            past = held.enter_context(run)

            def say(line: str) -> None:
                notes.append(line)
                if on_message is not None:
                    on_message(line)

            for name, why in (reasons or {}).items():
                say(f"{name:<21}{why}")
            for line in (f"computing on {device.type}: {training.notes[0]}", *training.notes[1:]):
                say(line)
            measured = None
            if validation is not None:
                measured = functools.partial(_validate, training, source, validation)
            take_steps(
                training,
                source,
                folder,
                past,
                validate=measured,
                on_record=on_record,
                on_validation=on_validation,
            )
        finally:
            shutdown_()
        if group.rank == 0:
            if training.best is not None:
                say(_outcome(training, training.best))
            if config.train.calibrate:
                own = validation if config.data.name == OWN else None
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


def _validate(training: Training, source: Source, validation: Source) -> ValidationRecord:
    """Measure the EMA of the weights."""
    predictor = predictor_of(training.network, training.config, training.ema)
    return validate(predictor, training.step, source, validation)


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
    predictor = predictor_of(training.network, training.config, training.export())
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
