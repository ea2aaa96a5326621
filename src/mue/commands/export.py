"""`mue export`: the network alone, for others."""

import os
from dataclasses import dataclass
from pathlib import Path

from mue.inference.load import find
from mue.runs.weights import export_run
from mue.runtime.atomic import new_folder


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A folder that can be loaded as a run folder, and the files in it."""

    folder: Path
    files: tuple[Path, ...]


def export(model: str | os.PathLike[str], out: str | Path, *, half: bool = True) -> ExportResult:
    """Copy what inference needs, the network and its configuration, to a new folder, with the log.

    In half precision a model is half as large; `evaluate` both to see whether the numbers hold.

    Args:
        model: A bundled model, or a run folder.
        out: The new folder.
        half: Whether to write the weights in half precision.
    """
    folder, target = find(model), Path(out)
    with new_folder(target) as made:
        export_run(folder, made, half=half)
    return ExportResult(target, tuple(sorted(target.iterdir())))
