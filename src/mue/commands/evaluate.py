"""`mue evaluate`: a model against known modes, or against raters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mue.commands.models import LoadedModel, Model, digest_of, load_models, output_folder
from mue.commands.progress import Progress, progress_of
from mue.commands.report import check_report, report, save_report
from mue.data.build import build_source, check_data
from mue.data.prepared.open import open_prepared, verify_prepared
from mue.data.prepared.splits import Split
from mue.data.source import Source
from mue.evaluation.health import INPUTS, HealthReport, Measuring, health
from mue.evaluation.items import check_inputs, split_of_data
from mue.evaluation.known import ModeEvaluation, evaluate_modes
from mue.evaluation.raters import RaterEvaluation, evaluate_raters
from mue.inference.load import find
from mue.modes import By
from mue.runs.folder import FIGURES, origin
from mue.runtime.atomic import check_folder, transaction
from mue.runtime.devices import Device


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The metrics input by input, the health of the model, the report, and the files written."""

    scores: ModeEvaluation | RaterEvaluation
    health: HealthReport
    report: dict[str, Any]
    files: tuple[Path, ...]


def evaluate(
    model: Model,
    *,
    data: str | Path | None = None,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    k: int = 16,
    by: By = "mode",
    out: str | Path | None = None,
    device: Device = "auto",
    progress: Progress | None = None,
) -> EvaluationResult:
    """Evaluate a model: `report-SPLIT.json`, `health-SPLIT.png`, for slices `slices-SPLIT.csv`.

    Synthetic inputs have known modes, to which the predicted probabilities are compared. Prepared
    slices have raters, to whom the answers are compared. The report ends with what is wrong with
    the model's codes or its prior, if anything is, and what to do about it.

    Args:
        model: A bundled model, a run folder, or a predictor.
        data: Folder of prepared slices, for a model that was trained on slices.
        split: Which part of the data.
        inputs: How many inputs, where they are synthetic.
        seed: Of synthetic inputs, or of the samples of `ged_n`.
        k: Answers decoded for each synthetic input.
        by: Whether what is ranked are modes, or single codes (slices).
        out: Folder for the files. By default the run folder, `runs/bundled/NAME` for a bundled
            model, and for a predictor nothing is written. A report there of another model, data
            or settings is replaced by default, and refused in a folder that is named.
        device: Where to compute.
        progress: Called with the model's name, the number of inputs done, and of all.
    """
    (loaded,) = load_models([model], device=device)
    predictor, show = loaded.predictor, progress_of(loaded.name, progress)
    check_data(predictor.config.data, data)
    target = None
    if out is not None or loaded.source is not None:
        target = output_folder(loaded, out)
        check_folder(target / FIGURES)
    identity: dict[str, Any] = {
        "model": digest_of(loaded),
        "data": None if data is None else open_prepared(data).digest,
        "split": split,
        "seed": seed,
        **({"inputs": inputs, "k": k} if data is None else {"by": by}),
    }
    if target is not None and out is not None:  # a run folder holds its last evaluation
        check_report(target / f"report-{split}.json", identity)
    if data is not None:
        verify_prepared(data)
    check_inputs(inputs)
    source, train = _sources(loaded, data, split, seed)
    judged = min(inputs, INPUTS)
    held = Measuring(predictor, source, judged)  # of answers that the evaluation asks for
    if data is None:
        scores = evaluate_modes(
            predictor, split=split, inputs=inputs, seed=seed, k=k, also=held, progress=show
        )
    else:
        scores = evaluate_raters(
            predictor, data, split=split, by=by, seed=seed, also=held, progress=show
        )
    show = progress_of(f"{loaded.name}: health", progress)
    found = health(predictor, source, train=train, inputs=judged, held=held, progress=show)
    content = {**report(loaded, scores), "identity": identity, "health": found.report()}
    if target is None:
        return EvaluationResult(scores, found, content, ())
    from mue.plots.health import save_health

    with transaction():
        files = [save_report(target / f"report-{split}.json", content)]
        if isinstance(scores, RaterEvaluation):
            files.append(target / f"slices-{split}.csv")
            scores.save_table(files[-1])
        figure = target / FIGURES / f"health-{split}.png"
        files += save_health(found, figure, loaded.name)
    return EvaluationResult(scores, found, content, tuple(files))


def _sources(
    model: LoadedModel, data: str | Path | None, split: Split, seed: int
) -> tuple[Source, Source | None]:
    """What a model is evaluated on, and what it was trained on if that is known and not the same.

    Prepared data are what a run was trained on if their digest is the one in its configuration.
    """
    predictor, config = model.predictor, model.predictor.config
    if data is None:
        build = partial(build_source, config.data, device=predictor.device)
        train = None if split == "train" else build("train", seed=config.train.seed)
        return build(split, seed=seed), train
    prepared = open_prepared(data)
    source = split_of_data(predictor, prepared, split)
    trained_on = None if model.source is None else origin(find(model.source))["data"]
    if split == "train" or trained_on != prepared.digest:
        return source, None
    return source, split_of_data(predictor, prepared, "train")
