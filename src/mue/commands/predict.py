"""`mue predict`: ranked answers to image files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mue.commands.report import Model, load_models, require_empty
from mue.devices import Device
from mue.errors import MueError
from mue.inference.files import read_image
from mue.inference.predictor import By
from mue.modes import Modes


@dataclass(frozen=True, slots=True)
class Prediction:
    """An image file, its pixels as the model takes them, and the ranked modes: a batch of one."""

    image: Path
    x: Tensor
    modes: Modes

    def summary(self) -> dict[str, Any]:
        """Probabilities, codes and members."""
        modes = self.modes
        columns = zip(modes.answer_prob[0].tolist(), modes.answer_code[0].tolist(), strict=True)
        answers = [{"prob": p, "code": code} for p, code in columns]
        mode, spread = modes.mode[0].tolist(), modes.spread[0].tolist()
        ranked = zip(modes.prob[0].tolist(), modes.representative[0].tolist(), spread, strict=True)
        return {
            "image": str(self.image),
            "cut": modes.cut,
            "coverage": modes.coverage,
            "answers": [
                {
                    "rank": i + 1,
                    "prob": p,
                    "code": answers[j]["code"],
                    "spread": s,
                    "members": [a for a, m in zip(answers, mode, strict=True) if m == i],
                }
                for i, (p, j, s) in enumerate(ranked)
            ],
            "rest": modes.rest[0].item(),
            "entropy": modes.entropy()[0].item(),
        }


@dataclass(frozen=True, slots=True)
class PredictionResult:
    """The answers to each image, and the files written: each answer, and overviews."""

    predictions: tuple[Prediction, ...]
    files: tuple[Path, ...]

    @property
    def report(self) -> list[dict[str, Any]]:
        """What `mue predict --json` prints."""
        return [prediction.summary() for prediction in self.predictions]


def predict(
    model: Model,
    images: Sequence[str | Path],
    *,
    k: int = 8,
    by: By = "mode",
    coverage: float | None = None,
    out: str | Path | None = None,
    device: Device = "auto",
) -> PredictionResult:
    """Answer image files. Every file is read before the first answer is computed or written.

    Args:
        model: A bundled model, a run folder, or a predictor.
        images: Image files.
        k: How many to show, at most; the probability of the others is `rest`.
        by: Whether answers that are alike are grouped into a mode, or each code stands alone.
        coverage: Show as many modes as hold the answer of a new rater with this probability.
        out: Folder for the answers as PNG, with an overview of each image.
        device: Where to compute.
    """
    if not images:
        raise MueError("`images` must name at least one image file, got none")
    if k < 1:
        raise MueError(f"`k` must be at least 1, got {k}")
    (loaded,) = load_models([model], device=device)
    predictor = loaded.predictor
    pixels = [read_image(path, predictor.config.model.c_in) for path in images]
    found: list[Prediction] = []
    for path, x in zip(images, pixels, strict=True):
        modes = predictor.modes(x, by=by, coverage=coverage)
        found.append(Prediction(Path(path), x, modes if coverage else modes.top(k)))
    files = _write(found, Path(out)) if out is not None else []
    return PredictionResult(tuple(found), tuple(files))


def _write(predictions: list[Prediction], folder: Path) -> list[Path]:
    from mue.plots.answers import plot_answers
    from mue.plots.style import save_figure, save_image

    require_empty(folder)
    if len({p.image.stem for p in predictions}) < len(predictions):
        raise MueError("`images` must have different names where answers are written to a folder")
    files: list[Path] = []
    for p in predictions:
        stem = folder / p.image.stem
        files += [save_image(y, Path(f"{stem}-{j + 1}.png")) for j, y in enumerate(p.modes.y[0])]
        overview = plot_answers(p.x[None], p.modes, p.image.name)
        files.append(save_figure(overview, Path(f"{stem}-answers.png")))
    return files
