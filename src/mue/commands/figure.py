"""`mue figure`: probabilities, answers and training history as plots."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mue.commands.models import LoadedModel, Model, load_models, output_folder
from mue.commands.progress import Progress, progress_of
from mue.data.build import build_source, check_data
from mue.data.prepared.open import open_prepared, verify_prepared
from mue.data.prepared.splits import Split
from mue.errors import MueError
from mue.evaluation.items import of_one_size, split_of_data
from mue.evaluation.known import ModeEvaluation, evaluate_modes
from mue.evaluation.latents import latent_samples
from mue.evaluation.raters import RaterEvaluation, evaluate_raters
from mue.evaluation.speed import single_pass
from mue.inference.load import find
from mue.inference.predictor import MODE_SAMPLES, Predictor
from mue.metrics.calibration import reliability
from mue.models.probunet import ProbUNet
from mue.modes import By
from mue.runs.folder import FIGURES
from mue.runs.log import read_log, read_validations
from mue.runtime.atomic import check_folder, transaction
from mue.runtime.devices import Device
from mue.types import Case

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Figures = Iterator[tuple[str, Figure]]  # with the names of their files

_EXAMPLES = 6  # inputs shown in a figure of answers


@dataclass(frozen=True, slots=True)
class FigureResult:
    """Figures, by the files that were written."""

    files: tuple[Path, ...]


def figure(
    models: Model | Sequence[Model],
    *,
    data: str | Path | None = None,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    by: By = "mode",
    out: str | Path | None = None,
    device: Device = "auto",
    progress: Progress | None = None,
) -> FigureResult:
    """Plot what one or several models answer.

    Of synthetic inputs: predicted and true probabilities, and answers to the first inputs; for a
    Probabilistic U-Net the densities of its latents, too. Of prepared slices: the spread of the
    energy distance and the reliability of all models side by side, and for each model its answers
    to ambiguous cases. The cases are those of highest entropy for the first model, one of a
    patient. The tree of the answers to the first of them. The training history where there is one.

    Args:
        models: Bundled models, run folders, or predictors.
        data: Folder of prepared slices, for models that were trained on slices.
        split: Which part of the data.
        inputs: How many inputs, where they are synthetic.
        seed: Of synthetic inputs, or of the samples of `ged_n`.
        by: Whether answers that are alike are grouped into a mode, or each code (or sample) stands
            alone, as in the figures of the paper.
        out: Folder for the figures, by default `figures` of the first model's run folder, or of
            `runs/bundled/NAME` for a bundled model. Several models have a folder each in it.
        device: Where to compute.
        progress: Called with a model's name, the number of inputs done, and of all.
    """
    listed = [models] if isinstance(models, (str, os.PathLike, Predictor)) else list(models)
    if not listed:
        raise MueError("`models` must name at least one model, got none")
    loaded = load_models(listed, device=device)
    if len({Path(model.name).name for model in loaded}) < len(listed):
        raise MueError("`models` must have different names, after which their figures are named")
    for model in loaded:
        check_data(model.predictor.config.data, data)
    target = output_folder(loaded[0], out) / ("" if out else FIGURES)
    folders = {model.name: target / ("" if len(loaded) == 1 else model.name) for model in loaded}
    for folder in folders.values():
        check_folder(folder)
    if data is not None:
        verify_prepared(data)
    files: list[Path] = []
    raters: dict[str, RaterEvaluation] = {}
    with transaction():
        for model in loaded:
            predictor, show = model.predictor, progress_of(model.name, progress)
            if data is None:
                k = MODE_SAMPLES if predictor.is_sampler and single_pass(predictor) else 16
                modes = evaluate_modes(
                    predictor, split=split, inputs=inputs, seed=seed, k=k, progress=show
                )
                files += plot_modes(model, modes, folders[model.name], by=by)
            else:
                raters[model.name] = evaluate_raters(
                    predictor, data, split=split, seed=seed, progress=show
                )
        if data is not None:
            files += _save(_overview(raters, split), target)
            index, prepared = torch.tensor(_ambiguous(raters[loaded[0].name])), open_prepared(data)
            for model in loaded:
                source = split_of_data(model.predictor, prepared, split)
                case = source.case(of_one_size(source, index)[:_EXAMPLES])
                files += _save(_cases(model, case, split, by), folders[model.name])
                files += _save(_history(model), folders[model.name])
    return FigureResult(tuple(files))


def _save(figures: Figures, folder: Path) -> list[Path]:
    from mue.plots.style import save_figure

    return [save_figure(figure, folder / name) for name, figure in figures]


def _history(model: LoadedModel) -> Figures:
    from mue.plots.history import plot_history

    if model.source is not None and (records := read_log(find(model.source))):
        validations = read_validations(find(model.source))
        yield "history.png", plot_history(records, model.name, validations)


def _kind(model: LoadedModel) -> str:
    """What its answers are when each stands alone."""
    predictor = model.predictor
    return "top" if predictor.codes else "samples" if predictor.is_sampler else "answers"


def _count(model: LoadedModel, k: int) -> int:
    return min(k, model.predictor.max_answers)


def _title(model: LoadedModel, k: int | None = None) -> str:
    """What a figure shows: modes, or k answers that each stand alone."""
    kind, k = _kind(model), None if k is None else _count(model, k)
    if k is not None:
        return f"{model.name}: " + (f"top {k}" if kind == "top" else f"{k} {kind}, not ranked")
    of = "" if kind == "top" else f" of {_count(model, MODE_SAMPLES)} {kind}"
    return f"{model.name}: modes{of}"


# --- synthetic inputs -----------------------------------------------------------------------------


def plot_modes(
    model: LoadedModel, scores: ModeEvaluation, folder: Path, *, by: By = "mode"
) -> list[Path]:
    """Plot the probabilities of modes, the first answers, and the history."""
    parts = (_probabilities(model, scores), _examples(model, scores.split, by), _history(model))
    return [path for figures in parts for path in _save(figures, folder)]


def _probabilities(model: LoadedModel, scores: ModeEvaluation) -> Figures:
    from mue.plots.probabilities import plot_densities, plot_probabilities

    predictor, count = model.predictor, len(scores.group)
    about = f"{model.name}: {count} {scores.split} inputs"
    title = f"{about}, seed {scores.seed}"
    title += f", {scores.k} samples each" if predictor.is_sampler else ""
    yield "modes.png", plot_probabilities(scores, title)
    if isinstance(predictor.network, ProbUNet):
        found = latent_samples(predictor, split=scores.split, inputs=count, seed=scores.seed)
        about += f", {found.mode.shape[1]} samples each"
        yield "densities.png", plot_densities(found, about)


def _examples(model: LoadedModel, split: Split, by: By) -> Figures:
    """The first inputs of each category with their answers."""
    from mue.plots.answers import plot_answers
    from mue.plots.points import plot_points
    from mue.plots.tree import plot_tree

    predictor, name = model.predictor, model.name
    source = build_source(predictor.config.data, split, seed=0, device=predictor.device)
    case = source.case(torch.arange(64, device=predictor.device))
    first = [case.group.index(g) for g in sorted(set(case.group))]
    if predictor.network.axes == 1:
        x, ys = case.x[first], case.ys[first]
        yield (
            "answers.png",
            plot_points(x.cpu(), predictor.modes(x, by=by, normalized=True).cpu(), ys.cpu(), name),
        )
        return
    rows = [*first, *(i for i in range(64) if i not in first)][:_EXAMPLES]
    names = [case.group[i] for i in rows]
    x = case.x[rows]
    if by == "mode":
        few = x[: max(4, len(first))]
        modes = predictor.modes(few, normalized=True).top(_EXAMPLES)
        yield "answers.png", plot_answers(few.cpu(), modes, _title(model), names)
        modes = predictor.modes(x[:1], normalized=True)
        yield (
            "tree.png",
            plot_tree(x[0].cpu(), modes, f"{_title(model)} for one input", outlines=False),
        )
        return
    for k, count in ((4, len(first)), (6, len(rows))):
        modes, title = (
            predictor.modes(x[:count], _count(model, k), by=by, normalized=True),
            _title(model, k),
        )
        yield f"{_kind(model)}-{k}.png", plot_answers(x[:count].cpu(), modes, title, names[:count])


# --- prepared slices ------------------------------------------------------------------------------


def _overview(scores: dict[str, RaterEvaluation], split: Split) -> Figures:
    """All models side by side."""
    from mue.plots.reliability import plot_reliability
    from mue.plots.spread import plot_spread

    columns = {name: s.columns for name, s in scores.items()}
    about = f"{len(next(iter(scores.values())).id)} {split} slices"
    spread = {name: c["ged"] for name, c in columns.items()}
    yield "spread.png", plot_spread(spread, f"energy distance (GED), {about}")
    curves = {name: reliability(c["presence"], c["annotated"]) for name, c in columns.items()}
    yield "reliability.png", plot_reliability(curves, f"presence of a lesion, {about}")
    modes = {name: (s.mode_prob, s.mode_share) for name, s in scores.items()}
    curves = {name: reliability(p[p > 0], share[p > 0]) for name, (p, share) in modes.items()}
    yield (
        "mode-reliability.png",
        plot_reliability(
            curves,
            f"modes, {about}",
            predicted="predicted probability of a mode",
            observed="share of raters in it",
            counted="modes",
        ),
    )


def _cases(model: LoadedModel, case: Case, split: Split, by: By) -> Figures:
    """The answers of a model to some slices, and the tree of those to the first."""
    from mue.plots.cases import plot_cases, plot_codes
    from mue.plots.tree import plot_tree

    predictor, about = model.predictor, f"ambiguous {split} slices"
    if by == "mode":
        title = f"{_title(model)} for {about}"
        yield "cases.png", plot_cases(case.cpu(), predictor.modes(case.x, normalized=True), title)
        title = f"{_title(model)} for {case.id[0]}"
        yield (
            "tree.png",
            plot_tree(case.x[0].cpu(), predictor.modes(case.x[:1], normalized=True), title),
        )
        return
    modes = predictor.modes(case.x, _count(model, 8), by=by, normalized=True)
    title = f"{_title(model, 8)}, {about}"
    yield f"{_kind(model)}-8.png", plot_cases(case.cpu(), modes, title, limit=8)
    if predictor.codes:
        coded = predictor.propose(case.x, predictor.codes, normalized=True).cpu()
        yield "codes.png", plot_codes(case.cpu(), coded, f"{model.name}: answers by code")


def _ambiguous(scores: RaterEvaluation) -> list[int]:
    """The slices of highest entropy, the highest first, no two of a patient."""
    chosen: dict[str, int] = {}
    for i in scores.columns["entropy"].argsort(descending=True, stable=True).tolist():
        chosen.setdefault(scores.patient[i], i)
    return list(chosen.values())
