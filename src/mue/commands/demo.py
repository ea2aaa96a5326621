"""`mue demo`: the bundled models on the guessing game."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mue.commands.figure import plot_modes
from mue.commands.models import load_models
from mue.commands.progress import Progress, progress_of
from mue.commands.report import report, save_report
from mue.evaluation.known import evaluate_modes
from mue.runtime.atomic import check_folder, transaction

DEMO = ("guess", "guess-exact")
"""The models of the demonstration: the paper's method, and ours."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What `report.json` holds, a report for each model, and the files written."""

    reports: dict[str, dict[str, Any]]
    files: tuple[Path, ...]


def demo(
    out: str | Path = "runs/demo", *, inputs: int = 1000, progress: Progress | None = None
) -> DemoResult:
    """Evaluate the bundled models on the guessing game, and plot their answers.

    Args:
        out: Folder for the report and the figures.
        inputs: How many inputs.
        progress: Called with a model's name, the number of inputs done, and of all.
    """
    folder = Path(out)
    check_folder(folder)
    reports: dict[str, dict[str, Any]] = {}
    figures: list[Path] = []
    with transaction():
        for model in load_models([f"bundled:{name}" for name in DEMO], device="cpu"):
            show = progress_of(model.name, progress)
            scores = evaluate_modes(model.predictor, inputs=inputs, progress=show)
            figures += plot_modes(model, scores, folder / "figures" / model.name)
            reports[model.name] = report(model, scores) | {"model": model.name}
        saved = save_report(folder / "report.json", reports)
    return DemoResult(reports, (saved, *figures))
