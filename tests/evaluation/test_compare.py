import json
import shutil
from pathlib import Path

import pytest
import torch

import mue
from mue.data.synthetic.toy import Bars
from mue.evaluation.compare import (
    ComparedModel,
    best,
    compare,
    latent_samples,
    load_models,
    metrics_of,
    names_of,
    sample_curve,
)
from mue.evaluation.known_modes import evaluate_modes
from mue.evaluation.raters import evaluate_raters
from mue.inference.load import load
from mue.metrics.interval import Interval
from mue.metrics.modes import mode_tv, nearest_mode


def rival(name: str, samples: int | None = None, **means: float) -> ComparedModel:
    metrics = {metric: Interval(v, float("nan"), v - 1, v + 1) for metric, v in means.items()}
    return ComparedModel(name, "exact", samples, 16, 1, 7, 2.0, metrics)


# --- rivals ---------------------------------------------------------------------------------------


def test_the_best_has_the_least_distance_and_the_most_overlap():
    models = [
        rival("a", ged=0.3, hm_iou_16=0.5),
        rival("b", ged=0.2, hm_iou_16=0.4),
        rival("c", 1, ged=0.2),
    ]
    assert best(models) == {"ged": 1, "hm_iou_16": 0}  # in a tie the first
    assert metrics_of(models) == ["ged", "hm_iou_16"]
    assert metrics_of(models[::-1]) == ["ged", "hm_iou_16"]


def test_a_rival_is_named_by_its_samples_and_summed_up_in_numbers():
    assert [rival("a").name, rival("a", 1).name, rival("a", 16).name] == [
        "a",
        "a, 1 sample",
        "a, 16 samples",
    ]
    content = json.loads(json.dumps(rival("a", ged=0.5).summary(), allow_nan=False))
    assert content["metrics"] == {"ged": {"mean": 0.5, "low": -0.5, "high": 1.5}}
    assert (content["samples"], content["parameters"], content["per_second"]) == (None, 7, 2.0)


def test_a_comparison_on_a_game_is_each_models_own_evaluation(baselines):
    told: list[tuple[str, int, int]] = []
    models = [baselines["exact"], baselines["probunet"], baselines["ensemble"]]
    found = compare(
        models, inputs=30, seed=2, samples=(4, 9), device="cpu", watch=lambda *a: told.append(a)
    )
    names = ["exact", "probunet, 4 samples", "probunet, 9 samples", "ensemble"]
    assert [r.name for r in found] == names
    assert [r.samples for r in found] == [None, 4, 9, None]
    assert [r.answers for r in found] == [6, 4, 9, 3]
    assert [r.passes for r in found] == [1, 1, 1, 3]
    for r in found:
        predictor = load(baselines[r.model], device="cpu")
        judged = evaluate_modes(predictor, inputs=30, seed=2, k=r.samples or 16)
        tv = mode_tv(judged.predicted, judged.true)
        assert r.metrics["mode_tv"].mean == pytest.approx(tv.mean().item())
        assert r.metrics["mode_tv"].low <= tv.mean() <= r.metrics["mode_tv"].high
        assert r.parameters == sum(p.numel() for p in predictor.network.parameters())
        assert r.per_second > 0
        assert (r.name, 30, 30) in told


def test_a_model_that_looks_again_for_each_sample_takes_part_once(baselines):
    found = compare(
        [baselines["dropout"], baselines["unet"]], inputs=3, samples=(5, 2), device="cpu"
    )
    assert [(r.samples, r.passes) for r in found] == [(2, 2), (None, 1)]


def test_a_comparison_on_slices_is_each_models_own_agreement(lesion_baselines, lesions):
    models = [lesion_baselines[name] for name in ("exact", "probunet")]
    found = compare(models, data=lesions, seed=3, samples=(4, 20), device="cpu")
    exact, few, many = found
    assert "ged_16" not in few.metrics  # which takes 16 samples
    names = ["ged", "ged_16", "hm_iou_16", "dice_top", "coverage_4", "coverage_16"]
    assert list(many.metrics) == [*names, "presence brier", "presence ece"]
    assert set(best(found)) == set(many.metrics)
    judged = evaluate_raters(load(models[0], device="cpu"), lesions, seed=3)
    assert exact.metrics["ged"].mean == pytest.approx(judged.ged.mean().item(), abs=1e-6)
    assert exact.metrics["ged_16"].mean == pytest.approx(judged.ged_n[16].mean().item(), abs=1e-6)
    judged = evaluate_raters(load(models[1], device="cpu"), lesions, seed=3, samples=20, batch=25)
    assert many.metrics["ged"].mean == pytest.approx(judged.ged.mean().item(), abs=1e-6)


# --- what is refused ------------------------------------------------------------------------------


def test_models_that_cannot_be_compared_are_refused(baselines, lesion_baselines, lesions, tmp_path):
    toy, guess, slices = baselines["exact"], "guess", lesion_baselines["exact"]
    for models, words in (
        ([], "a comparison needs at least two different models, got 0"),
        ([toy], "at least two different models, got 1"),
        ([toy, str(toy)], "at least two different models, got 1"),
        ([toy, guess], "the same question .*: the task is toy for exact and guess for guess"),
        ([toy, "nowhere"], "no bundled model and no run folder 'nowhere'"),
    ):
        with pytest.raises(ValueError, match=words):
            load_models(models, device="cpu")
    with pytest.raises(ValueError, match="--data must name a folder of prepared slices"):
        load_models([slices, lesion_baselines["probunet"]], device="cpu")
    with pytest.raises(ValueError, match="--data must be left out for 'toy'"):
        load_models([toy, baselines["unet"]], data=lesions, device="cpu")
    with pytest.raises(ValueError, match="is not prepared data"):
        load_models([slices, lesion_baselines["probunet"]], data=tmp_path, device="cpu")
    for samples in ((0,), (16, 5000), ()):
        with pytest.raises(ValueError, match=r"`samples` must be numbers in 1..4096, got \["):
            load_models([toy, baselines["unet"]], samples=samples, device="cpu")


def test_models_that_end_alike_go_by_their_whole_path():
    assert names_of(["a/x", "b/y"]) == {"x": "a/x", "y": "b/y"}
    assert names_of(["a/x", "b/x", "a/x"]) == {"a/x": "a/x", "b/x": "b/x"}


# --- how many samples -----------------------------------------------------------------------------


def test_a_curve_is_the_distance_of_the_first_samples_of_one_draw(baselines):
    predictor = load(baselines["probunet"], device="cpu")
    points = sample_curve(predictor, counts=(1, 3, 8), inputs=5, seed=4)
    assert [p.answers for p in points] == [1, 3, 8]
    assert all(p.seconds > 0 for p in points)
    generator = torch.Generator().manual_seed(4)
    from_source = Bars(seed=4 + (1 << 40))
    tv = torch.zeros(3)
    for i in range(5):
        case = from_source.case(torch.tensor([i]))
        mode = nearest_mode(predictor.propose(case.x, 8, generator=generator).y, case.ys)[0]
        for j, n in enumerate((1, 3, 8)):
            share = torch.bincount(mode[:n], minlength=2) / n
            tv[j] += (share - case.q[0]).abs().sum() / 2 / 5
    assert [p.mode_tv for p in points] == pytest.approx(tv.tolist(), abs=1e-6)


def test_a_ranking_is_one_point_of_the_curve(baselines):
    predictor = load(baselines["exact"], device="cpu")
    (point,) = sample_curve(predictor, inputs=7, seed=1)
    judged = evaluate_modes(predictor, inputs=7, seed=1)
    assert point.answers == 6
    expected = mode_tv(judged.predicted, judged.true).mean().item()
    assert point.mode_tv == pytest.approx(expected, abs=1e-4)  # evaluate leaves out the improbable


def test_latents_are_drawn_with_their_modes_and_densities(baselines):
    found = latent_samples(load(baselines["probunet"], device="cpu"), inputs=60, k=3, seed=1)
    assert found.mode.shape == found.log_density.shape == (60, 3)
    assert (found.log_density <= 0).all()
    assert set(found.group) == {"dim", "bright"}
    torch.testing.assert_close(found.frequency().sum(dim=1), torch.ones(60))


# --- the job and the command ----------------------------------------------------------------------


@pytest.fixture
def beside(baselines, tmp_path) -> Path:
    for name, folder in baselines.items():
        shutil.copytree(folder, tmp_path / name)
    return tmp_path


def test_a_comparison_is_written_and_drawn(baselines, tmp_path):
    models = [baselines["exact"], baselines["probunet"]]
    found = mue.compare(models, inputs=4, samples=(2,), out=tmp_path, device="cpu")
    names = ["comparison.json", "comparison.png", "samples.png"]
    assert found.files == [tmp_path / name for name in names]
    content = json.loads((tmp_path / "comparison.json").read_text())
    assert content == found.content
    assert [r["model"] for r in content["models"]] == ["exact", "probunet"]
    assert content["best"]["mode_tv"] in [r.name for r in found.models]
    assert (content["inputs"], content["seed"]) == (4, 0)
    made = content["evaluated_with"]
    assert (made["device"], made["threads"]) == ("cpu", torch.get_num_threads())
    assert made["seconds"] > 0
    assert made["name"]
    assert len(content["curves"]["probunet"]) == 13
    assert len(content["curves"]["exact"]) == 1


def test_without_a_sampler_there_is_no_curve(baselines, tmp_path):
    models = [baselines["exact"], baselines["dropout"]]
    found = mue.compare(models, inputs=4, samples=(2,), out=tmp_path, device="cpu")
    assert [path.name for path in found.files] == ["comparison.json", "comparison.png"]
    assert "curves" not in found.content


@pytest.mark.usefixtures("beside")
def test_a_comparison_for_people_is_a_table(mue, tmp_path):
    said = mue("compare", "exact", "probunet", "unet", "--inputs", 5, "--samples", 2, 30)
    assert said.code == 0, said
    for word in ("model", "samples", "mode_tv", "mode_mae", "parameters", "answers/s", "passes"):
        assert word in said.out
    assert "…" not in said.out  # no number is cut off
    for line in ("report   runs/compare/comparison.json", "figure   runs/compare/comparison.png"):
        assert line in said.out.splitlines()
    assert (tmp_path / "runs" / "compare" / "samples.png").is_file()
    assert "probunet, 30 samples" in said.err  # the bar
    assert "5/5" in said.err


@pytest.mark.usefixtures("beside")
def test_a_comparison_in_json_is_json_alone(mue, tmp_path):
    said = mue("compare", "exact", "unet", "--inputs", 5, "--json", "--out", "new")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out) == json.loads((tmp_path / "new" / "comparison.json").read_text())


def test_slices_are_compared_with_data(mue, lesion_baselines, lesions, tmp_path):
    models = [lesion_baselines["exact"], lesion_baselines["probunet"], lesion_baselines["ensemble"]]
    said = mue(
        "compare", *models, "--data", lesions, "--split", "val", "--samples", 16, "--out", "new"
    )
    assert said.code == 0, said
    for word in ("ged_16", "hm_iou_16", "presence ece"):
        assert word in said.out
    content = json.loads((tmp_path / "new" / "comparison.json").read_text())
    assert (content["split"], len(content["models"])) == ("val", 3)
    assert {p.name for p in (tmp_path / "new").iterdir()} == {"comparison.json", "comparison.png"}


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("exact", "a comparison needs at least two different models, got 1"),
        ("", "a comparison needs at least two different models, got 0"),
        ("exact guess", "models must answer the same question to be compared: the task is toy"),
        ("exact unet --data nowhere", "--data must be left out for 'toy'"),
        ("exact unet --inputs 0", "`inputs` must be at least 1, got 0"),
        ("exact probunet --samples 0", "`samples` must be numbers in 1..4096, got [0]"),
        ("exact nobody", "no bundled model and no run folder 'nobody'"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence_exit_2_and_nothing_written(
    mue, tmp_path, arguments, words
):
    before = {str(p) for p in tmp_path.rglob("*")}
    said = mue("compare", *arguments.split(), "--out", "new")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("mue: ")
    assert words in said.err
    assert said.err.count("\n") == 1
    assert {str(p) for p in tmp_path.rglob("*")} == before
