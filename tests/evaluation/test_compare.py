import json
from pathlib import Path

import pytest

from mue.evaluation.columns import METRICS
from mue.evaluation.compare import ComparedModel, best, compare_models, metrics_of
from mue.evaluation.known import evaluate_modes
from mue.evaluation.raters import evaluate_raters
from mue.inference.load import load
from mue.inference.predictor import Predictor
from mue.metrics.bootstrap import Interval
from mue.metrics.modes import mode_tv


def loaded(folders: dict[str, Path], *names: str, half: bool = False) -> dict[str, Predictor]:
    return {name: load(folders[name], device="cpu", half=half) for name in names}


def row(name: str, samples: int | None = None, **means: float) -> ComparedModel:
    metrics = {metric: Interval(v, float("nan"), v - 1, v + 1) for metric, v in means.items()}
    return ComparedModel(name, "exact", samples, 16, 1, 7, 2.0, metrics)


# --- rows -----------------------------------------------------------------------------------------


def test_the_best_has_the_lowest_distance_or_the_highest_overlap():
    models = [
        row("a", ged=0.3, hm_iou_16=0.5),
        row("b", ged=0.2, hm_iou_16=0.4),
        row("c", 1, ged=0.2),
    ]
    assert best(models) == {"ged": 1, "hm_iou_16": 0}  # in a tie the first
    assert metrics_of(models) == ["ged", "hm_iou_16"]
    assert metrics_of(models[::-1]) == ["ged", "hm_iou_16"]


def test_a_row_is_named_by_its_samples_and_summed_up_in_numbers():
    assert [row("a").name, row("a", 1).name, row("a", 16).name] == [
        "a",
        "a, 1 sample",
        "a, 16 samples",
    ]
    content = json.loads(json.dumps(row("a", ged=0.5).summary(), allow_nan=False))
    assert content["metrics"] == {"ged": {"mean": 0.5, "low": -0.5, "high": 1.5}}
    assert (content["samples"], content["parameters"], content["per_second"]) == (None, 7, 2.0)


def test_a_comparison_on_a_game_is_each_models_own_evaluation(baselines):
    calls: list[tuple[str, int, int]] = []
    models = loaded(baselines, "exact", "probunet", "ensemble")
    found = compare_models(
        models, inputs=30, seed=2, samples=(4, 9), progress=lambda *a: calls.append(a)
    )
    names = ["exact", "probunet, 4 samples", "probunet, 9 samples", "ensemble"]
    assert [r.name for r in found] == names
    assert [r.samples for r in found] == [None, 4, 9, None]
    assert [r.answers for r in found] == [6, 4, 9, 3]
    assert [r.passes for r in found] == [1, 1, 1, 3]
    for r in found:
        predictor = load(baselines[r.model], device="cpu")
        scores = evaluate_modes(predictor, inputs=30, seed=2, k=r.samples or 16)
        tv = mode_tv(scores.predicted, scores.true)
        assert r.metrics["mode_tv"].mean == pytest.approx(tv.mean().item())
        assert r.metrics["mode_tv"].low <= tv.mean() <= r.metrics["mode_tv"].high
        assert r.parameters == sum(p.numel() for p in predictor.network.parameters())
        assert r.per_second > 0
        assert (r.name, 30, 30) in calls


def test_a_model_that_looks_again_for_each_sample_takes_part_once(baselines):
    found = compare_models(loaded(baselines, "dropout", "unet"), inputs=3, samples=(5, 2))
    assert [(r.samples, r.passes) for r in found] == [(2, 2), (None, 1)]


def test_a_comparison_on_slices_is_each_models_own_evaluation(lesion_baselines, lesions):
    models = loaded(lesion_baselines, "exact", "probunet")
    found = compare_models(models, data=lesions, seed=3, samples=(4, 20))
    exact, few, many = found
    assert "ged_16" not in few.metrics  # which takes 16 samples
    names = [name for name, m in METRICS.items() if m.in_report and m.in_comparison]
    names.remove("mode_tv")  # nobody knows the true probabilities
    assert {"ged", "ged_16", "hm_iou_16", "dice_top", "coverage_1", "coverage_2", "n90"} <= set(
        names
    )
    more = ["presence brier", "presence ece", "mode brier", "mode ece"]
    assert list(many.metrics) == [*names, *more]
    assert list(many.difference) == [*names, *more]
    assert not exact.difference
    assert set(best(found)) == set(many.metrics)
    scores = evaluate_raters(models["exact"], lesions, seed=3)
    assert exact.metrics["ged"].mean == pytest.approx(scores.columns["ged"].mean().item(), abs=1e-6)
    assert exact.metrics["ged_16"].mean == pytest.approx(
        scores.columns["ged_16"].mean().item(), abs=1e-6
    )
    scores = evaluate_raters(models["probunet"], lesions, seed=3, samples=20, batch=25)
    assert many.metrics["ged"].mean == pytest.approx(scores.columns["ged"].mean().item(), abs=1e-6)


# --- what is refused ------------------------------------------------------------------------------


def test_models_that_cannot_be_compared_are_refused(baselines, lesion_baselines, lesions, tmp_path):
    toy, slices = loaded(baselines, "exact", "unet"), loaded(lesion_baselines, "exact", "probunet")
    guess = {"guess": load("guess", device="cpu")}
    exact = loaded(baselines, "exact")
    other = {"half": load(baselines["unet"], device="cpu", half=True)}
    for models, words in (
        ({}, "a comparison needs at least two different models, got 0"),
        (exact, "at least two different models, got 1"),
        (exact | guess, "the same question .*: the task is toy for exact and guess for guess"),
        (exact | other, "half precision is False for exact and True for half"),
    ):
        with pytest.raises(ValueError, match=words):
            compare_models(models)
    with pytest.raises(ValueError, match="--data must name a folder of prepared slices"):
        compare_models(slices)
    with pytest.raises(ValueError, match="--data must be left out for 'toy'"):
        compare_models(toy, data=lesions)
    with pytest.raises(ValueError, match="is not prepared data"):
        compare_models(slices, data=tmp_path)
    for samples in ((0,), (16, 5000), ()):
        with pytest.raises(ValueError, match=r"`samples` must be numbers in 1..4096, got \["):
            compare_models(toy, samples=samples)
