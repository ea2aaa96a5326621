import shutil
from pathlib import Path

import pytest
from PIL import Image

import mue
from mue.commands.figure import _ambiguous, _title
from mue.commands.models import load_models
from mue.evaluation.raters import evaluate_raters


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def image_size(path: Path) -> tuple[int, int]:
    """The size of a image file that is valid, and not blank."""
    with Image.open(path) as file:
        assert len(file.convert("L").getcolors() or range(256)) > 10
        return file.size


# --- synthetic inputs ----------------------------------------------------------------------------


def test_the_figures_of_a_run_go_into_its_folder(folder):
    plotted = mue.figure(folder, inputs=9, device="cpu").files
    names = ("modes", "answers", "tree", "history")
    assert plotted == tuple(folder / "figures" / f"{name}.png" for name in names)
    for path in plotted:
        image_size(path)


def test_by_code_each_answer_stands_alone(folder, tmp_path):
    plotted = mue.figure(folder, by="code", inputs=9, out=tmp_path, device="cpu").files
    names = ("modes", "top-4", "top-6", "history")
    assert plotted == tuple(tmp_path / f"{name}.png" for name in names)
    for path in plotted:
        image_size(path)


def test_each_figure_has_a_file_of_its_own_however_few_the_codes(tiny, tmp_path):
    folder = mue.train(tiny("exact", codebook={"size": 3}, steps=1), tmp_path / "run").folder
    plotted = mue.figure(folder, out=tmp_path / "figures", inputs=9, device="cpu").files
    assert len(plotted) == len(set(plotted))
    assert {path.name for path in plotted} == set(files_in(tmp_path / "figures"))


@pytest.mark.parametrize(
    ("by", "own"), [("mode", ["answers", "tree"]), ("code", ["samples-4", "samples-6"])]
)
def test_the_figures_of_a_probabilistic_u_net_show_samples_and_densities(
    baselines, tmp_path, by, own
):
    model = baselines["probunet"]
    plotted = mue.figure(model, by=by, out=tmp_path, inputs=9, device="cpu").files
    names = ("modes", "densities", *own, "history")
    assert plotted == tuple(tmp_path / f"{name}.png" for name in names)
    for path in plotted:
        image_size(path)


@pytest.mark.parametrize(("name", "kind"), [("dropout", "samples"), ("ensemble", "answers")])
def test_the_figures_of_other_baselines_pretend_no_ranking(baselines, tmp_path, name, kind):
    plotted = mue.figure(baselines[name], by="code", out=tmp_path, inputs=9, device="cpu").files
    names = ["modes.png", f"{kind}-4.png", f"{kind}-6.png", "history.png"]
    assert [path.name for path in plotted] == names


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("exact", "{}: modes"),
        ("probunet", "{}: modes of 100 samples"),
        ("ensemble", "{}: modes of 3 answers"),
    ],
)
def test_a_title_says_what_modes_are_formed_of(baselines, name, title):
    (model,) = load_models([baselines[name]], device="cpu")
    assert _title(model) == title.format(model.name)


def test_several_models_of_synthetic_inputs_have_folders_of_their_own(baselines, tmp_path):
    models = [baselines["exact"], baselines["ensemble"]]
    files = mue.figure(models, inputs=9, out=tmp_path, device="cpu").files
    names = {str(path.relative_to(tmp_path)) for path in files}
    exact = {f"exact/{name}.png" for name in ("modes", "answers", "tree", "history")}
    members = {f"ensemble/{name}.png" for name in ("modes", "answers", "tree", "history")}
    assert names == exact | members == set(files_in(tmp_path))


def test_the_figures_of_a_predictor_need_a_folder(folder, tmp_path):
    predictor = mue.load(folder, device="cpu")
    with pytest.raises(mue.MueError, match="`out` must name a folder for the files of a Predictor"):
        mue.figure(predictor, inputs=3)
    files = mue.figure(predictor, inputs=3, out=tmp_path / "out").files
    assert [path.name for path in files] == ["modes.png", "answers.png", "tree.png"]


# --- prepared slices -----------------------------------------------------------------------------


def test_one_model_has_its_figures_in_its_folder(lesion_model, lesions, tmp_path):
    copy = Path(shutil.copytree(lesion_model, tmp_path / "copy"))
    plotted = mue.figure(copy, data=lesions, device="cpu").files
    names = [
        "spread.png",
        "reliability.png",
        "mode-reliability.png",
        "cases.png",
        "tree.png",
        "history.png",
    ]
    assert plotted == tuple(copy / "figures" / name for name in names)
    for path in plotted:
        image_size(path)


def test_slices_by_code_have_a_ranking_and_a_column_for_each_code(lesion_model, lesions, tmp_path):
    files = mue.figure(lesion_model, by="code", data=lesions, out=tmp_path, device="cpu").files
    names = [
        "spread.png",
        "reliability.png",
        "mode-reliability.png",
        "top-8.png",
        "codes.png",
        "history.png",
    ]
    assert files == tuple(tmp_path / name for name in names)
    for path in files:
        image_size(path)


@pytest.fixture
def two(lesion_model, lesions, tmp_path) -> list[Path]:
    """A model and its calibrated self."""
    one = Path(shutil.copytree(lesion_model, tmp_path / "one"))
    mue.calibrate(one, tmp_path / "two", data=lesions, device="cpu")
    return [one, tmp_path / "two"]


def test_two_models_share_the_spread_and_have_folders_of_their_own(two, lesions, tmp_path):
    calls = []
    plotted = mue.figure(
        two,
        data=lesions,
        split="val",
        out=tmp_path / "out",
        device="cpu",
        progress=lambda *a: calls.append(a),
    ).files
    assert len(set(plotted)) == len(plotted)
    found = {str(path.relative_to(tmp_path / "out")) for path in plotted}
    shared = {"spread.png", "reliability.png", "mode-reliability.png"}
    own = {f"{name}/{file}.png" for name in ("one", "two") for file in ("cases", "tree", "history")}
    assert found == shared | own
    for path in plotted:
        image_size(path)
    assert {a[0] for a in calls} == {path.name for path in two}


def test_models_of_one_name_cannot_share_a_figure(lesion_model, lesions, tmp_path):
    """Their figures would go to one folder, and one would hide the other."""
    pair = [Path(shutil.copytree(lesion_model, tmp_path / name / "best")) for name in "ab"]
    with pytest.raises(ValueError, match="`models` must have different names"):
        mue.figure(pair, data=lesions, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_cases_are_the_slices_of_highest_entropy_one_of_a_patient(lesion_model, lesions):
    scores = evaluate_raters(mue.load(lesion_model, device="cpu"), lesions)
    chosen = _ambiguous(scores)
    assert len(chosen) == 3  # there are three patients
    assert len({scores.patient[i] for i in chosen}) == 3
    entropy = scores.columns["entropy"].tolist()
    assert [entropy[i] for i in chosen] == sorted((entropy[i] for i in chosen), reverse=True)
    for i in chosen:
        mine = [entropy[j] for j in range(12) if scores.patient[j] == scores.patient[i]]
        assert entropy[i] == max(mine)


def test_a_model_of_a_game_has_no_figures_of_slices(trained, lesions, tmp_path):
    with pytest.raises(
        ValueError, match="--data must be left out for 'toy', whose inputs are generated"
    ):
        mue.figure(trained, data=lesions, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("by", "own"), [("mode", ["cases", "tree"]), ("code", ["samples-8"])])
def test_a_sampler_has_its_samples_plotted_and_no_codes(
    lesion_baselines, lesions, tmp_path, by, own
):
    model = lesion_baselines["probunet"]
    files = mue.figure(model, by=by, data=lesions, out=tmp_path, device="cpu").files
    names = ["spread", "reliability", "mode-reliability", *own, "history"]
    assert files == tuple(tmp_path / f"{name}.png" for name in names)
    for path in files:
        image_size(path)
