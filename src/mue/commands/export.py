"""`mue export`: the network alone, for others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mue.commands.report import require_empty
from mue.inference.load import find
from mue.training import checkpoint


@dataclass(frozen=True, slots=True)
class ExportResult:
    """An exported model.

    Attributes:
        folder: Can be loaded as a run folder.
        files: What was written.
    """

    folder: Path
    files: tuple[Path, ...]


def export(model: str | Path, out: str | Path, *, half: bool = True) -> ExportResult:
    """Copy what inference needs, θ and its configuration, to a new folder, with the log.

    In half precision a model is half as large; `evaluate` both to see whether the numbers hold.
    """
    folder, target = find(model), Path(out)
    require_empty(target)
    checkpoint.export(folder, target, half=half)
    return ExportResult(target, tuple(sorted(target.iterdir())))
