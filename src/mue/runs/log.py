"""The log of a run, `log.jsonl`: one JSON object per line.

There is a `LogRecord` every few steps, and a `ValidationRecord` after that of its step.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mue.errors import MueError
from mue.runtime import collectives
from mue.runtime.atomic import write_atomic

LOG = "log.jsonl"
_LARGEST_LOG = 1 << 28


class NonFiniteError(ArithmeticError):
    """The loss is NaN or infinite."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The numbers of one step, as logged."""

    step: int
    prior: float
    reconstruction: float
    commitment: float
    total: float
    codes: int
    lr: float
    seconds: float
    energy: float = 0.0
    memory: int = 0
    """Peak memory in MiB, of the GPU or else of the process; 0 where it is not known."""


@dataclass(frozen=True, slots=True)
class ValidationRecord:
    """The numbers of one validation, as logged: means over inputs that are not trained on."""

    step: int
    metric: str
    """What `score` is: `ged` where inputs have raters, `mode_tv` where their modes are known."""
    score: float
    nll: float
    """Negative log-likelihood of the answers, in nats."""
    train_nll: float
    """The same for as many inputs of the training data: where it falls alone, it over-fits."""
    ece: float
    """Expected calibration error of the probabilities of modes."""
    codes: int
    """Codes in use."""
    stopped: bool = False
    """Whether training stopped here, by `train.patience`."""


AnyRecord = LogRecord | ValidationRecord


def best_validation(records: Sequence[ValidationRecord]) -> ValidationRecord:
    """The record of the weights that are exported: the first of the lowest score."""
    return min(records, key=lambda r: r.score)


@contextlib.contextmanager
def log_writer(folder: Path) -> Generator[Callable[[AnyRecord], None]]:
    """Append records to the log, and to TensorBoard where it is installed."""
    with contextlib.ExitStack() as opened:
        board: Any = None
        with contextlib.suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            board = opened.enter_context(SummaryWriter(folder / "tensorboard"))
        file = opened.enter_context((folder / LOG).open("a", encoding="utf-8"))

        def write(record: AnyRecord) -> None:
            values = dataclasses.asdict(record)
            try:
                file.write(json.dumps(values) + "\n")
                file.flush()
            except OSError as error:
                error.filename = str(folder / LOG)  # a full disk does not say where
                raise
            if board is not None:
                group = "validation/" if isinstance(record, ValidationRecord) else ""
                for name, value in values.items():
                    if name not in ("step", "metric", "stopped"):
                        name = values["metric"] if name == "score" else name
                        board.add_scalar(group + name, value, record.step)

        yield write


def log_content(folder: Path) -> bytes:
    """The log as it is; empty where there is none."""
    path = folder / LOG
    if not path.is_file():
        return b""
    if (size := path.stat().st_size) > _LARGEST_LOG:
        raise MueError(f"{path} must be at most {_LARGEST_LOG} bytes, got {size}; remove lines")
    return path.read_bytes()


def read_log(folder: Path) -> list[LogRecord]:
    """The records of the steps of a run, in order; none where there is no log."""
    return [r for r in _read(folder) if isinstance(r, LogRecord)]


def read_validations(folder: Path) -> list[ValidationRecord]:
    """The records of the validations of a run, in order."""
    return [r for r in _read(folder) if isinstance(r, ValidationRecord)]


def _read(folder: Path) -> list[AnyRecord]:
    """All records.

    A last line without its line feed was cut off by a kill, or is being written: it is left out.
    Any other line that is no record is refused.
    """
    path, records = folder / LOG, list[AnyRecord]()
    *lines, last = log_content(folder).decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            records.append(_record(line))
        except (ValueError, TypeError, RecursionError):
            raise MueError(
                f"{path}, line {number}, must be a record of the log, got {line[:80]!r}; "
                "restore the file or remove the line"
            ) from None
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        records.append(_record(last))
    return records


def _record(line: str) -> AnyRecord:
    values = json.loads(line)
    record = ValidationRecord(**values) if "score" in values else LogRecord(**values)
    for field in dataclasses.fields(record):
        value, kinds = getattr(record, field.name), (field.type,)
        if type(value) not in ((int, float) if field.type is float else kinds):
            raise TypeError(f"{field.name} is {value!r}")
        if type(value) is int and not 0 <= value < 2**63:
            raise ValueError(f"{field.name} is {value}")
    return record


def trim_log(folder: Path, step: int) -> float:
    """Drop what was logged after the checkpoint at `step`; returns the seconds it took until then.

    All processes call it, and only the first one writes.
    """
    kept = [r for r in _read(folder) if r.step <= step]
    if collectives.rank() == 0:
        lines = "".join(json.dumps(dataclasses.asdict(r)) + "\n" for r in kept)
        write_atomic(folder / LOG, lines.encode())
    return max((r.seconds for r in kept if isinstance(r, LogRecord)), default=0.0)
