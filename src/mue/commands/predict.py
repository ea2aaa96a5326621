"""`mue predict`: ranked answers to image files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from mue.commands.models import LoadedModel, Model, digest_of, load_models
from mue.commands.paths import Paths, paths_of
from mue.commands.progress import Progress
from mue.data.images.image import Axis, RawImage
from mue.errors import MueError
from mue.inference.files import (
    RECORDS,
    SETTINGS,
    InputFile,
    find_inputs,
    input_digest,
    read_input,
    require_different_names,
)
from mue.inference.inputs import network_input
from mue.inference.predictor import Predictor
from mue.inference.segmentation import as_nifti, as_npz, segmentation
from mue.modes import By, Modes
from mue.runtime.atomic import UNFINISHED, check_folder, transaction, write_atomic
from mue.runtime.devices import Device, choose_device
from mue.training.distributed import env_int
from mue.version import __version__

Format = Literal["png", "json", "nifti", "dicom-seg", "npz"]
"""png: the answers and a sheet of them over the image; json: probabilities; the others: masks."""
_LAST: dict[Format, str] = {
    "png": "-answers.png",
    "json": ".json",
    "nifti": "-expected.nii.gz",
    "dicom-seg": "-expected.dcm",
    "npz": ".npz",
}
"""What the name of the last file ends in that is written of a format."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """An image file, its pixels as the model takes them, and the ranked modes: a batch of one.

    The slices of a volume are stacked along the height (c, d·h, w), in `x` and in the modes.
    """

    image: Path
    x: Tensor
    modes: Modes
    raw: RawImage
    labels: dict[str, int]  # values of named classes in label maps

    def summary(self) -> dict[str, Any]:
        """Probabilities, codes and members."""
        modes = self.modes
        columns = zip(modes.answer_prob[0].tolist(), modes.answer_code[0].tolist(), strict=True)
        answers = [{"prob": p, "code": code} for p, code in columns]
        mode, spread = modes.mode[0].tolist(), modes.spread[0].tolist()
        ranked = zip(modes.prob[0].tolist(), modes.representative[0].tolist(), spread, strict=True)
        return {
            "image": str(self.image),
            **({"labels": self.labels} if self.labels else {}),
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
    """What became of the images.

    Attributes:
        report: Probabilities, codes and members of each answer, for each image.
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
    if not format or set(format) - set(get_args(Format)):
        known = ", ".join(get_args(Format))
        raise MueError(f"`format` must be some of {known}, got {', '.join(format) or 'none'}")
    (loaded,) = load_models([model], device=choose_device(device, env_int("LOCAL_RANK", 0)))
    predictor = loaded.predictor
    c, data = predictor.config.model.c_in, predictor.config.data
    labels = dict(zip(data.labels, data.values or itertools.count(), strict=False))
    if predictor.network.axes != 3:
        raise MueError("a model of vectors takes no image files; call `propose` with an array")
    tell = progress or (lambda *_: None)

    def answer(file: InputFile, raw: RawImage) -> Prediction:
        x = network_input(raw.pixels, data.normalize, raw.bits)
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
        return Prediction(file.paths[0], tall, modes if coverage else modes.top(k), raw, labels)

    inputs = find_inputs(listed, c)
    if out is None:
        raws = [read_input(file, c, axis) for file in inputs]
        found = [answer(file, raw) for file, raw in zip(inputs, raws, strict=True)]
        return PredictionResult([p.summary() for p in found], tuple(found))
    folder = Path(out)
    settings = _settings(loaded, k=k, by=by, coverage=coverage, axis=axis)
    check_folder(folder)
    _require_same(folder, settings)
    require_different_names(inputs)
    inputs = inputs[env_int("RANK", 0) :: env_int("WORLD_SIZE", 1)]
    share = len(inputs)
    inputs = [file for file in inputs if not _is_answered(folder, file, format)]
    if not skip_bad:
        for file in inputs:  # nothing is written if one of them is bad
            read_input(file, c, axis)
    report, files, rejected = list[dict[str, Any]](), list[Path](), list[str]()
    for i, file in enumerate(inputs):
        try:
            digest = input_digest(file)
            prediction = answer(file, read_input(file, c, axis))
            content = _encoded(prediction, format, predictor)
        except MueError as error:
            if not skip_bad:
                raise
            rejected.append(str(error))
        else:
            before = _record(folder, file)
            if before.get("sha256") != digest:  # of another image, or there is none
                _path(folder / RECORDS, file, ".json").unlink(missing_ok=True)
            with transaction():
                if not (folder / SETTINGS).exists():  # first, so that no other process is refused
                    write_atomic(folder / SETTINGS, settings)
                written = _write(prediction, content, folder, file, predictor, png="png" in format)
                _write_record(folder, file, digest, written, before)
            files += written
            report.append(prediction.summary())
        tell(loaded.name, share - len(inputs) + i + 1, share)
    return PredictionResult(report, (), tuple(files), share - len(inputs), tuple(rejected), folder)


def _settings(model: LoadedModel, **chosen: Any) -> bytes:
    """The model and the settings that decide answers, as JSON."""
    about = {
        "mue": __version__,
        "model": model.name,
        "model_digest": digest_of(model),
        **chosen,
    }
    return (json.dumps(about, indent=2) + "\n").encode()


def _require_same(folder: Path, settings: bytes) -> None:
    """Refuse a folder that holds anything but answers by the same model and settings."""
    if not folder.exists() or all(p.name.startswith(UNFINISHED) for p in folder.iterdir()):
        return
    if not (folder / SETTINGS).is_file():
        raise MueError(
            f"{folder} must be empty or not exist yet, or hold answers, and it holds files"
        )
    try:
        before, now = dict(json.loads((folder / SETTINGS).read_bytes())), json.loads(settings)
    except (ValueError, TypeError, RecursionError):
        raise MueError(
            f"{folder / SETTINGS} must be what `mue predict` wrote, and it is damaged; "
            "take another folder"
        ) from None
    for name, value in now.items():
        if name != "model" and before.get(name) != value:
            raise MueError(
                f"{folder} holds answers with {name} = {before.get(name)}, and this is {value}; "
                "take another folder"
            )


def _record(folder: Path, file: InputFile) -> dict[str, Any]:
    """Which image the answers of the name of an input are about; {} where that is not known."""
    path = _path(folder / RECORDS, file, ".json")
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else {}
        known = isinstance(found, dict) and all(isinstance(n, str) for n in found["files"])
        return found if known else {}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _is_answered(folder: Path, file: InputFile, formats: Sequence[Format]) -> bool:
    """Whether the answers to this image, not to another of its name, are there in all formats."""
    names, record = {f"{file.name}{_LAST[name]}" for name in formats}, _record(folder, file)
    there = names <= set(record.get("files", ())) and all((folder / n).exists() for n in names)
    return there and record.get("sha256") == input_digest(file)


def _write_record(
    folder: Path, file: InputFile, digest: str, written: Sequence[Path], before: dict[str, Any]
) -> None:
    """Say which image was answered, and by which files: those of another image are removed."""
    names = {path.relative_to(folder).as_posix() for path in written}
    if before.get("sha256") == digest:
        names.update(before["files"])
    else:
        for name in set(before.get("files", ())) - names:
            if (folder / name).resolve().is_relative_to(folder.resolve()):
                (folder / name).unlink(missing_ok=True)
    paths = [str(path) for path in file.paths]
    record = {"image": paths, "sha256": digest, "files": sorted(names)}
    content = (json.dumps(record, indent=2) + "\n").encode()
    write_atomic(_path(folder / RECORDS, file, ".json"), content)


def _path(folder: Path, file: InputFile, ending: str) -> Path:
    return folder / f"{file.name}{ending}"


def _encoded(p: Prediction, formats: Sequence[Format], predictor: Predictor) -> dict[str, bytes]:
    """The files of all formats but png, by what their names end in; the last of each comes last."""
    content: dict[str, bytes] = {}
    if set(formats) & {"nifti", "dicom-seg", "npz"}:
        found = segmentation(p.modes, p.raw, predictor.config)
        if "nifti" in formats:
            content |= as_nifti(found)
        if "dicom-seg" in formats:
            from mue.inference.dicom_seg import as_dicom_seg

            content |= as_dicom_seg(found)
        if "npz" in formats:
            content[".npz"] = as_npz(found)
    if "json" in formats:
        content[".json"] = (json.dumps(p.summary(), indent=2) + "\n").encode()
    return content


def _write(
    p: Prediction,
    content: dict[str, bytes],
    folder: Path,
    file: InputFile,
    predictor: Predictor,
    *,
    png: bool,
) -> list[Path]:
    """Write the answers to an image, each file whole or not at all."""
    paths = [_path(folder, file, ending) for ending in content]
    for path, data in zip(paths, content.values(), strict=True):
        write_atomic(path, data)
    if not png:
        return paths
    from mue.plots.style import save_image

    if p.raw.pixels.shape[1] == 1:
        classes = predictor.config.objective.likelihood == "categorical"
        for j, y in enumerate(p.modes.y[0], start=1):
            path = _path(folder, file, f"-{j}.png")
            values = predictor.config.data.values
            paths.append(save_image(y, path, classes=classes, class_values=values))
    return [*paths, _save_sheet(p, predictor, _path(folder, file, _LAST["png"]))]


def _save_sheet(p: Prediction, predictor: Predictor, path: Path) -> Path:
    """Plot masks over the image, for a volume over the slice where they differ most."""
    from mue.plots.answers import plot_answers
    from mue.plots.overlays import plot_overlays
    from mue.plots.style import save_figure

    if predictor.config.data.name != "slices" or predictor.config.objective.likelihood == "normal":
        return save_figure(plot_answers(p.x[None], p.modes, p.image.name), path)
    found, d = segmentation(p.modes, p.raw, predictor.config), p.raw.pixels.shape[1]
    s = int((found.expected * (1 - found.expected)).sum(axis=(0, 2, 3)).argmax())
    x = p.x.unflatten(1, (d, -1))[:, s].numpy()
    if predictor.config.data.normalize.kind != "unit":  # values of any range
        low, high = np.percentile(x, (1, 99))
        x = (x - low) / max(high - low, 1e-8)
    title = p.image.name if d == 1 else f"{p.image.name}, slice {s + 1} of {d}"
    masks, expected = found.masks[:, s], found.expected[:, s]
    figure = plot_overlays(
        x.clip(0, 1), masks, found.prob, found.rest, expected, found.classes, title
    )
    return save_figure(figure, path)
