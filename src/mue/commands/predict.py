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
from mue.types import Hypotheses


@dataclass(frozen=True, slots=True)
class Prediction:
    """An image file, its pixels as the model takes them, and the answers: a batch of one."""

    image: Path
    x: Tensor
    hypotheses: Hypotheses

    def summary(self) -> dict[str, Any]:
        """Probabilities and codes."""
        h = self.hypotheses
        ranked = enumerate(zip(h.prob[0].tolist(), h.code[0].tolist(), strict=True), 1)
        return {
            "image": str(self.image),
            "answers": [{"rank": i, "prob": p, "code": code} for i, (p, code) in ranked],
            "rest": h.rest[0].item(),
            "entropy": h.entropy()[0].item(),
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
    k: int | None = None,
    merge: bool = False,
    out: str | Path | None = None,
    device: Device = "auto",
) -> PredictionResult:
    """Answer image files. Every file is read before the first answer is computed or written.

    Args:
        model: A bundled model, a run folder, or a predictor.
        images: Image files.
        k: How many answers; by default 8, or all where there are fewer.
        merge: Whether to join answers that are the same, and add up their probabilities.
        out: Folder for the answers as PNG, with an overview of each image.
        device: Where to compute.
    """
    if not images:
        raise MueError("`images` must name at least one image file, got none")
    (loaded,) = load_models([model], device=device)
    predictor = loaded.predictor
    pixels = [read_image(path, predictor.config.model.c_in) for path in images]
    found: list[Prediction] = []
    for path, x in zip(images, pixels, strict=True):
        h = predictor.propose(x, k)
        found.append(Prediction(Path(path), x, h.merge() if merge else h))
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
        h, stem = p.hypotheses, folder / p.image.stem
        files += [save_image(y, Path(f"{stem}-{j + 1}.png")) for j, y in enumerate(h.y[0])]
        overview = plot_answers(p.x[None], h, p.image.name)
        files.append(save_figure(overview, Path(f"{stem}-answers.png")))
    return files
