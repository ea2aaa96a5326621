import json
import shutil
from pathlib import Path

import pytest
import torch

import mue
from mue.commands import compare as comparing
from mue.errors import MueError
from mue.evaluation.compare import compare_models
from mue.inference import load as loading
from mue.inference.load import load
from mue.inference.predictor import Predictor


@pytest.fixture
def beside(baselines, tmp_path) -> Path:
    for name, folder in baselines.items():
        shutil.copytree(folder, tmp_path / name)
    return tmp_path


def test_a_comparison_is_written_and_plotted(baselines, tmp_path):
    models = [baselines["exact"], baselines["probunet"]]
    found = mue.compare(models, inputs=4, samples=(2,), out=tmp_path, device="cpu")
    names = ["comparison.json", "comparison.png", "samples.png"]
    assert found.files == tuple(tmp_path / name for name in names)
    content = json.loads((tmp_path / "comparison.json").read_text())
    assert content == found.report
    assert [r["model"] for r in content["models"]] == ["exact", "probunet"]
    assert content["best"]["mode_tv"] in [r.name for r in found.models]
    assert (content["inputs"], content["seed"]) == (4, 0)
    made = content["evaluated_with"]
    assert (made["device"], made["threads"]) == ("cpu", torch.get_num_threads())
    assert made["seconds"] > 0
    assert made["name"]
    assert len(content["curves"]["probunet"]) == 13
    assert len(content["curves"]["exact"]) == 1


def test_every_model_is_computed_in_float32_without_cuda_graphs(baselines, tmp_path, monkeypatch):
    """As on a GPU, where models are loaded in half precision by default."""
    seen: dict[str, Predictor] = {}

    def compare(predictors, **options):
        seen.update(predictors)
        return compare_models(predictors, **options)

    monkeypatch.setattr(loading, "half_by_default", lambda _: True)
    monkeypatch.setattr(comparing, "compare_models", compare)
    models = [baselines["exact"], baselines["ensemble"]]
    made = mue.compare(models, inputs=2, out=tmp_path, device="cpu").report["evaluated_with"]
    assert {name: predictor.half for name, predictor in seen.items()} == {
        "exact": False,
        "ensemble": False,
    }
    assert (made["precision"], made["cuda_graph"]) == ("float32", False)


def test_cuda_graphs_are_used_by_all_predictors_or_none_and_reported(baselines, tmp_path):
    class Captured(Predictor):
        cuda_graph = True

    plain = [load(baselines[name], device="cpu") for name in ("exact", "ensemble")]
    captured = [Captured(p.network, p.config) for p in plain]
    with pytest.raises(MueError, match="CUDA graphs is False for model 1 and True for model 2"):
        mue.compare([plain[0], captured[1]], inputs=2, out=tmp_path / "mixed")
    assert not (tmp_path / "mixed").exists()
    for models, expected in ((plain, False), (captured, True)):
        made = mue.compare(models, inputs=2, out=tmp_path / str(expected)).report["evaluated_with"]
        assert made["cuda_graph"] is expected


def test_a_comparison_in_a_named_folder_is_not_replaced_by_another(baselines, tmp_path):
    def compare(*models, **settings):
        options = {"inputs": 4, "samples": (2,), "device": "cpu"} | settings
        return mue.compare([baselines[m] for m in models], out=tmp_path, **options)

    compare("exact", "unet")
    compare("exact", "unet")
    for others, what in (
        (lambda: compare("exact", "dropout"), "models"),
        (lambda: compare("exact", "unet", seed=1), "seed"),
        (lambda: compare("exact", "unet", split="val", inputs=5), "split, inputs"),
    ):
        with pytest.raises(
            MueError, match=f"is a report of another evaluation, by its {what}; remove it, or take"
        ):
            others()


def test_a_comparison_is_not_replaced_by_that_of_another_calibration(folder, tmp_path):
    models = [folder, Path(shutil.copytree(folder, tmp_path / "other"))]

    def compare() -> None:
        mue.compare(models, inputs=4, out=tmp_path / "out", device="cpu")

    compare()
    compare()
    content = json.loads((models[1] / "config.json").read_text())
    content["config"]["modes"]["cut"] = 0.25  # the same weights
    (models[1] / "config.json").write_text(json.dumps(content))
    with pytest.raises(MueError, match="is a report of another evaluation, by its models; remove"):
        compare()


def test_without_a_sampler_there_is_no_curve(baselines, tmp_path):
    models = [baselines["exact"], baselines["dropout"]]
    found = mue.compare(models, inputs=4, samples=(2,), out=tmp_path, device="cpu")
    assert [path.name for path in found.files] == ["comparison.json", "comparison.png"]
    assert "curves" not in found.report


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
        ("exact unet --inputs 0", "`inputs` must be in 1..1000000000, got 0"),
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


def test_a_comparison_whose_figure_fails_leaves_no_report(baselines, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no figure")

    monkeypatch.setattr("mue.plots.comparison.plot_comparison", fail)
    models = [baselines["exact"], baselines["ensemble"]]
    with pytest.raises(RuntimeError, match="no figure"):
        mue.compare(models, inputs=2, out=tmp_path / "out", device="cpu")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_computed(
    baselines, tmp_path, monkeypatch
):
    monkeypatch.setattr(comparing, "compare_models", lambda *_, **__: pytest.fail("computed"))
    (tmp_path / "file").write_text("text")
    with pytest.raises(MueError, match="file must be a folder to write to, and it is a file"):
        mue.compare([baselines["exact"], baselines["ensemble"]], out=tmp_path / "file")
