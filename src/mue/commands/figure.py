"""`mue figure`: probabilities, answers and training history as plots."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mue.commands.report import (
    LoadedModel,
    Model,
    Progress,
    as_list,
    load_models,
    output_folder,
)
from mue.data.build import build_source, check_data
from mue.data.prepared.dataset import Slices
from mue.data.prepared.splits import Split
from mue.data.prepared.store import open_prepared
from mue.devices import Device
from mue.errors import MueError
from mue.evaluation.compare import latent_samples, single_pass
from mue.evaluation.known_modes import ModeEvaluation, evaluate_modes
from mue.evaluation.raters import RaterEvaluation, evaluate_raters
from mue.inference.load import find
from mue.metrics.calibration import reliability
from mue.models.probunet import ProbUNet
from mue.training.log import read_log

_EXAMPLES = 6  # inputs shown in a figure of answers


@dataclass(frozen=True, slots=True)
class FigureResult:
    """Figures.

    Attributes:
        files: What was written.
    """

    files: tuple[Path, ...]


def figure(
    models: Model | Sequence[Model],
    *,
    data: str | Path | None = None,
    split: Split = "test",
    inputs: int = 1000,
    seed: int = 0,
    out: str | Path | None = None,
    device: Device = "auto",
    progress: Progress | None = None,
) -> FigureResult:
    """Plot what one or several models answer.

    Of synthetic inputs: predicted and true probabilities, and answers to the first inputs; for a
    Probabilistic U-Net the densities of its latents, too. Of prepared slices: the spread of the
    energy distance and the reliability of all models side by side, and for each model its answers
    to ambiguous cases, ranked and by code. The cases are those of highest entropy for the first
    model, one of a patient. The training history where there is one.

    Args:
        models: Bundled models, run folders, or predictors.
        data: Folder of prepared slices, for models that were trained on slices.
        split: Which part of the data.
        inputs: How many inputs, where they are synthetic.
        seed: Of synthetic inputs, or of the samples of `ged_n`.
        out: Folder for the figures, by default `figures` of the first model's run folder, or of
            `runs/bundled/NAME` for a bundled model. Several models have a folder each in it.
        device: Where to compute.
        progress: Called with a model's name, the number of inputs done, and of all.
    """
    listed = as_list(models)
    if not listed:
        raise MueError("`models` must name at least one model, got none")
    loaded = load_models(listed, device=device)
    if len({Path(model.name).name for model in loaded}) < len(listed):
        raise MueError("`models` must have different names, by which their figures are told apart")
    for model in loaded:
        check_data(model.predictor.config.data, data)
    target = output_folder(loaded[0], out) / ("" if out else "figures")
    files: list[Path] = []
    if data is None:
        for model in loaded:
            many = model.predictor.is_sampler and single_pass(model.predictor)
            scores = evaluate_modes(
                model.predictor,
                split=split,
                inputs=inputs,
                seed=seed,
                k=100 if many else 16,
                progress=functools.partial(progress, model.name) if progress else None,
            )
            files += plot_modes(model, scores, target if len(loaded) == 1 else target / model.name)
    else:
        files += _plot_slices(loaded, data, split, seed, target, progress)
    return FigureResult(tuple(files))


# --- synthetic inputs -----------------------------------------------------------------------------


def plot_modes(model: LoadedModel, scores: ModeEvaluation, target: Path) -> list[Path]:
    """Plot the probabilities of modes, the first answers, and the history."""
    from mue.plots.probabilities import plot_densities, plot_probabilities
    from mue.plots.style import save_figure

    predictor, count = model.predictor, len(scores.group)
    title = f"{model.name}: {count} {scores.split} inputs, seed {scores.seed}"
    if predictor.is_sampler:
        title += f", {scores.k} samples each"
    files = [save_figure(plot_probabilities(scores, title), target / "modes.png")]
    if isinstance(predictor.network, ProbUNet):
        found = latent_samples(predictor, split=scores.split, inputs=count, seed=scores.seed)
        about = f"{model.name}: {count} {scores.split} inputs, {found.mode.shape[1]} samples each"
        files.append(save_figure(plot_densities(found, about), target / "densities.png"))
    return [*files, *_plot_examples(model, scores.split, target), *_plot_history(model, target)]


def _plot_examples(model: LoadedModel, split: Split, target: Path) -> list[Path]:
    """The first inputs of each category with their answers."""
    from mue.plots.answers import plot_answers, plot_points
    from mue.plots.style import save_figure

    predictor = model.predictor
    source = build_source(predictor.config.data, split, seed=0, device=predictor.device)
    case = source.case(torch.arange(64, device=predictor.device))
    groups = sorted(set(case.group))
    first = [case.group.index(g) for g in groups]
    if predictor.network.axes == 1 and predictor.codes:
        h = predictor.propose(case.x[first], predictor.max_answers)
        merged = h.merge(torch.cdist, below=0.5).cpu()
        points = plot_points(case.x[first].cpu(), merged, case.ys[first].cpu(), model.name)
        return [save_figure(points, target / "answers.png")]
    more = [i for i in range(64) if i not in first][: _EXAMPLES - len(first)]
    files: list[Path] = []
    kind = "samples" if predictor.is_sampler else "top" if predictor.codes else "answers"
    for top, rows in ((4, first), (6, [*first, *more])):
        k = min(top, predictor.max_answers)
        h = predictor.propose(case.x[rows], k).cpu()
        ranked = f"top {k}" if predictor.codes else f"{k} {kind}, not ranked"
        names = [case.group[i] for i in rows]
        answers = plot_answers(case.x[rows].cpu(), h, f"{model.name}: {ranked}", names)
        files.append(save_figure(answers, target / f"{kind}-{top}.png"))
    return files


def _plot_history(model: LoadedModel, target: Path) -> list[Path]:
    from mue.plots.history import plot_history
    from mue.plots.style import save_figure

    records = read_log(find(model.source)) if model.source is not None else []
    if not records:
        return []
    return [save_figure(plot_history(records, model.name), target / "history.png")]


# --- prepared slices ------------------------------------------------------------------------------


def _plot_slices(
    models: list[LoadedModel],
    data: str | Path,
    split: Split,
    seed: int,
    target: Path,
    progress: Progress | None,
) -> list[Path]:
    from mue.plots.comparison import plot_spread
    from mue.plots.reliability import plot_reliability
    from mue.plots.style import save_figure

    scores = {
        model.name: evaluate_raters(
            model.predictor,
            data,
            split=split,
            seed=seed,
            progress=functools.partial(progress, model.name) if progress else None,
        )
        for model in models
    }
    first = scores[models[0].name]
    about = f"{len(first.id)} {split} slices"
    spread = plot_spread(
        {n: s.columns["ged"] for n, s in scores.items()}, f"energy distance (GED), {about}"
    )
    curves = {
        n: reliability(s.columns["presence"], s.columns["annotated"]) for n, s in scores.items()
    }
    reliable = plot_reliability(curves, f"presence of a lesion, {about}")
    files = [
        save_figure(spread, target / "spread.png"),
        save_figure(reliable, target / "reliability.png"),
    ]
    index = torch.tensor(_ambiguous(first, _EXAMPLES))
    for model in models:
        place = target if len(models) == 1 else target / model.name
        files += _plot_cases(model, data, split, index, place)
        files += _plot_history(model, place)
    return files


def _plot_cases(
    model: LoadedModel, data: str | Path, split: Split, index: torch.Tensor, target: Path
) -> list[Path]:
    """The answers of a model to some slices, ranked and by code."""
    from mue.plots.cases import plot_cases, plot_codes
    from mue.plots.style import save_figure

    predictor, name = model.predictor, model.name
    case = Slices(open_prepared(data), split, device=predictor.device).case(index)
    top = predictor.propose(case.x, min(8, predictor.max_answers)).cpu()
    coded = predictor.propose(case.x, predictor.codes).cpu() if predictor.codes else None
    case = case.cpu()
    title = f"{name}: the {split} slices of highest entropy"
    if coded is None:
        kind = "samples" if predictor.is_sampler else "answers"
        title = f"{name}: {top.prob.shape[1]} {kind}, not ranked, of {len(case.id)} {split} slices"
    files = [save_figure(plot_cases(case, top, title), target / "cases.png")]
    if coded is not None:
        by_code = plot_codes(case, coded, f"{name}: answers by code")
        files.append(save_figure(by_code, target / "codes.png"))
    return files


def _ambiguous(scores: RaterEvaluation, count: int) -> list[int]:
    """The slices of highest entropy, the highest first, no two of a patient."""
    chosen: dict[str, int] = {}
    for i in scores.columns["entropy"].argsort(descending=True, stable=True).tolist():
        chosen.setdefault(scores.patient[i], i)
        if len(chosen) == count:
            break
    return list(chosen.values())
