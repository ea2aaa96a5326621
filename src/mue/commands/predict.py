"""`mue predict`: ranked answers to image files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from mue.commands.models import Model, digest_of, load_models
from mue.commands.paths import Paths, paths_of
from mue.commands.progress import Progress
from mue.data.images.image import Axis, RawImage
from mue.errors import MueError
from mue.inference.answers_folder import AnswersFolder
from mue.inference.files import (
    InputFile,
    find_inputs,
    input_digest,
    read_input,
    require_different_names,
)
from mue.inference.inputs import network_input
from mue.inference.prediction import Prediction
from mue.inference.writers import FORMATS, Format
from mue.modes import By
from mue.runtime.collectives import env_int
from mue.runtime.devices import Device, choose_device
from mue.version import __version__


@dataclass(frozen=True, slots=True)
class PredictionResult:
    """What became of the images.

    Attributes:
        report: Probabilities, codes and members of each mode, for each image.
        predictions: The answers themselves, where they are not written to a folder.
        files: Files written.
        done: How many images had their answers in the folder before.
        rejected: With `skip_bad`, what is wrong with each image that could not be answered.
        folder: Where they were written.
    """

    report: list[dict[str, Any]]
    predictions: tuple[Prediction, ...] = ()
    files: tuple[Path, ...] = ()
    done: int = 0
    rejected: tuple[str, ...] = ()
    folder: Path | None = None


def predict(
    model: Model,
    images: Paths,
    *,
    k: int = 8,
    by: By = "mode",
    coverage: float | None = None,
    out: str | Path | None = None,
    format: Sequence[Format] = ("png",),  # noqa: A002
    axis: Axis = 2,
    skip_bad: bool = False,
    device: Device = "auto",
    progress: Progress | None = None,
) -> PredictionResult:
    """Answer image files, folders of them and DICOM series.

    Every file is read before the first answer is computed or written. With `out`, images whose
    answers are there already are skipped, by the digest of their files, and under `torchrun` each
    process takes its share, which it reads before it writes.

    Args:
        model: A bundled model, a run folder, or a predictor.
        images: Image files, folders of images, folders of a DICOM series.
        k: How many to show, at most; the probability of the others is `rest`.
        by: Whether answers that are alike are grouped into a mode, or each code stands alone.
        coverage: Show as many modes as hold the answer of a new rater with this probability.
        out: Folder for the answers.
        format: What is written: png (each answer, and a sheet of all over the image), json, nifti
            (hypotheses along the fourth axis), dicom-seg (a segment for each, and the expected
            mask), npz.
        axis: The axis of (i, j, k) along which a volume is cut into the slices that are answered.
        skip_bad: Go on after an image that cannot be answered, and list it at the end.
        device: Where to compute.
        progress: Called with the name of the job, the number of images done, and of all.
    """
    listed = paths_of(images, "images")
    if not listed:
        raise MueError("`images` must name at least one image file, got none")
    if not isinstance(k, Integral) or k < 1:
        raise MueError(f"`k` must be at least 1, got {k}")
    if not format or set(format) - set(FORMATS):
        known, given = ", ".join(FORMATS), ", ".join(format) or "none"
        raise MueError(f"`format` must be some of {known}, got {given}")
    (loaded,) = load_models([model], device=choose_device(device, env_int("LOCAL_RANK", 0)))
    predictor = loaded.predictor
    config, c = predictor.config, predictor.config.model.c_in
    if predictor.network.axes != 3:
        raise MueError("a model of vectors takes no image files; call `propose` with an array")
    tell = progress or (lambda *_: None)

    def answer(file: InputFile, raw: RawImage) -> Prediction:
        x = network_input(raw.pixels, config.data.normalize, raw.bits)
        d = len(x)
        modes = predictor.modes(
            x,
            by=by,
            coverage=coverage,
            normalized=True,
            volume=d > 1,
            on_slice=lambda i: tell("slices", i, d),
        )
        tall = x.transpose(0, 1).flatten(1, 2)
        modes = modes if coverage else modes.top(k)
        return Prediction(file.paths[0], tall, modes, raw, by, loaded.name, config)

    inputs = find_inputs(listed, c)
    if out is None:
        raws = [read_input(file, c, axis) for file in inputs]
        found = [answer(file, raw) for file, raw in zip(inputs, raws, strict=True)]
        return PredictionResult([p.summary() for p in found], tuple(found))
    decided_by = {"mue": __version__, "model": loaded.name, "model_digest": digest_of(loaded)}
    settings = {**decided_by, "k": k, "by": by, "coverage": coverage, "axis": axis}
    folder = AnswersFolder(Path(out), settings)
    folder.require_same()
    require_different_names(inputs)
    inputs = inputs[env_int("RANK", 0) :: env_int("WORLD_SIZE", 1)]
    share = len(inputs)
    inputs = [file for file in inputs if not folder.is_answered(file, format)]
    if not skip_bad:
        for file in inputs:  # nothing is written if one of them is bad
            read_input(file, c, axis)
    report, files, rejected = list[dict[str, Any]](), list[Path](), list[str]()
    for i, file in enumerate(inputs):
        try:
            digest = input_digest(file)
            prediction = answer(file, read_input(file, c, axis))
            encoded = [FORMATS[name].encode(prediction) for name in dict.fromkeys(format)]
        except MueError as error:
            if not skip_bad:
                raise
            rejected.append(str(error))
        else:
            content = {ending: data for each in encoded for ending, data in each.items()}
            files += folder.write(file, digest, content)
            report.append(prediction.summary())
        tell(loaded.name, share - len(inputs) + i + 1, share)
    return PredictionResult(
        report, (), tuple(files), share - len(inputs), tuple(rejected), folder.path
    )
