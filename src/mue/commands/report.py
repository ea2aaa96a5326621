"""Reports as JSON: what they hold, and which of them may be replaced."""

import contextlib
import json
from pathlib import Path
from typing import Any

import torch

from mue.commands.models import LoadedModel
from mue.errors import MueError
from mue.evaluation.known import ModeEvaluation
from mue.evaluation.raters import RaterEvaluation
from mue.inference.load import find
from mue.runs.folder import origin
from mue.runs.weights import weights_digest
from mue.runtime.atomic import write_atomic
from mue.version import __version__

_LARGEST_REPORT = 1 << 26


def check_report(path: Path, identity: dict[str, Any]) -> None:
    """Refuse to replace the report of another evaluation: of another model, data or settings."""
    before = None
    if path.is_file() and path.stat().st_size < _LARGEST_REPORT:
        with contextlib.suppress(ValueError, RecursionError):
            before = json.loads(path.read_bytes())
    if not isinstance(before, dict):
        return
    found = before.get("identity")
    found = found if isinstance(found, dict) else {}
    if other := [name for name, value in identity.items() if found.get(name) != value]:
        raise MueError(
            f"{path} is a report of another evaluation, by its {', '.join(other)}; "
            "remove it, or take another --out"
        )


def report(model: LoadedModel, evaluation: ModeEvaluation | RaterEvaluation) -> dict[str, Any]:
    """What `report-SPLIT.json` holds: the model, how it was trained, and every metric."""
    about: dict[str, Any] = {"model": model.name, "method": model.predictor.config.method}
    if model.source is not None:
        folder = find(model.source)
        about |= {
            "model": str(model.source),
            "weights": weights_digest(folder),
            "trained_with": origin(folder),
        }
    versions = {"version": __version__, "torch": torch.__version__}
    return {**about, "evaluated_with": versions, **evaluation.report()}


def save_report(path: Path, content: dict[str, Any]) -> Path:
    """Write a report as indented JSON."""
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
    return path
