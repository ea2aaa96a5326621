import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch

import mue
from mue.data.prepared.write import write_prepared
from mue.errors import MueError
from mue.evaluation.columns import METRICS, Metric
from mue.evaluation.compare import higher_is_better
from mue.evaluation.known import ModeEvaluation, evaluate_modes
from mue.evaluation.raters import RaterEvaluation, evaluate_raters


@pytest.fixture
def copy(lesion_model, tmp_path) -> Path:
    return Path(shutil.copytree(lesion_model, tmp_path / "copy"))


def test_synthetic_inputs_are_compared_with_their_modes(folder):
    calls: list[tuple[str, int, int]] = []
    found = mue.evaluate(
        folder, inputs=9, seed=2, k=3, device="cpu", progress=lambda *a: calls.append(a)
    )
    assert isinstance(found.scores, ModeEvaluation)
    expected = evaluate_modes(mue.load(folder, device="cpu"), inputs=9, seed=2, k=3)
    assert torch.equal(found.scores.predicted, expected.predicted)
    assert found.files == (folder / "report-test.json", folder / "figures" / "health-test.png")
    assert json.loads(found.files[0].read_text()) == found.report
    assert [call for call in calls if call[1] == 9] == [
        ("copy", 9, 9),
        ("copy: health", 9, 9),  # training inputs: the others were answered for the scores
    ]


def test_slices_are_compared_with_their_raters(copy, lesions):
    found = mue.evaluate(copy, data=lesions, seed=2, device="cpu")
    assert isinstance(found.scores, RaterEvaluation)
    expected = evaluate_raters(mue.load(copy, device="cpu"), lesions, seed=2)
    assert found.scores.columns.keys() == expected.columns.keys()
    for name, values in expected.columns.items():
        assert torch.equal(found.scores.columns[name], values), name
    names = ("report-test.json", "slices-test.csv", "figures/health-test.png")
    assert found.files == tuple(copy / name for name in names)


def test_over_fitting_is_looked_for_in_the_data_that_a_model_was_trained_on(
    copy, lesions, lesion, patients, tmp_path
):
    """Data from elsewhere, with a test split alone and one rater of the four it learned from."""
    known = mue.evaluate(copy, data=lesions, device="cpu")
    assert known.health.train_ged is not None
    assert mue.evaluate(copy, data=lesions, split="train", device="cpu").health.train_ged is None
    items = [
        lesion(name, 1, 0, side=s) for name, s in zip(patients("test", 2), (16, 20), strict=True)
    ]
    items = [dataclasses.replace(item, masks=item.masks[:1]) for item in items]
    write_prepared(items, tmp_path / "other", {})
    found = mue.evaluate(copy, data=tmp_path / "other", out=tmp_path / "out", device="cpu")
    assert found.health.train_ged is None
    assert found.health.inputs == 2


def test_a_report_is_not_replaced_by_that_of_another_calibration(folder, tmp_path):
    def evaluate() -> bytes:
        mue.evaluate(folder, inputs=2, out=tmp_path / "reports", device="cpu")
        return (tmp_path / "reports" / "report-test.json").read_bytes()

    before = evaluate()
    assert evaluate().partition(b'"health"')[0] == before.partition(b'"health"')[0]
    content = json.loads((folder / "config.json").read_text())
    content["config"]["modes"]["cut"] = 0.25  # the same weights
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(MueError, match="is a report of another evaluation, by its model; remove"):
        evaluate()


def test_a_second_split_does_not_overwrite_the_first(copy, lesions):
    first = mue.evaluate(copy, data=lesions, split="val", device="cpu")
    before = [path.read_bytes() for path in first.files]
    second = mue.evaluate(copy, data=lesions, split="test", device="cpu")
    assert not set(first.files) & set(second.files)
    assert [path.read_bytes() for path in first.files] == before
    assert json.loads((copy / "report-val.json").read_text())["split"] == "val"
    assert json.loads((copy / "report-test.json").read_text())["split"] == "test"


def test_a_split_of_synthetic_inputs_has_a_report_of_its_own(folder):
    val, test = (mue.evaluate(folder, inputs=5, split=s, device="cpu") for s in ("val", "test"))
    names = ["report-val.json", "health-val.png", "report-test.json", "health-test.png"]
    assert [f.name for f in (*val.files, *test.files)] == names
    assert val.report["split"] == "val"
    assert val.report["mode_tv"] != test.report["mode_tv"]


def test_a_predictor_is_evaluated_and_nothing_is_written(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    found = mue.evaluate(mue.load(folder, device="cpu"), inputs=5)
    assert found.files == ()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    by_name = mue.evaluate(folder, inputs=5, device="cpu").report
    assert found.report["mode_tv"] == by_name["mode_tv"]
    assert "weights" not in found.report  # which file they came from is not known
    written = mue.evaluate(mue.load(folder, device="cpu"), inputs=5, out=tmp_path / "out")
    assert written.files[0] == tmp_path / "out" / "report-test.json"


def test_the_report_ends_with_the_health_of_the_model(folder):
    val, train = (mue.evaluate(folder, inputs=300, split=s, device="cpu") for s in ("val", "train"))
    assert val.report["health"] == val.health.report()
    assert val.health.inputs == 256  # they are enough
    assert val.health.train_ged is not None
    assert train.health.train_ged is None  # nothing was held back


def test_a_model_without_codes_has_no_figure_of_them(baselines, tmp_path):
    found = mue.evaluate(baselines["probunet"], inputs=5, out=tmp_path / "out", device="cpu")
    assert [path.name for path in found.files] == ["report-test.json"]
    assert found.report["health"]["codes"] == []


def test_the_report_of_a_bundled_model_leaves_a_run_of_its_name_alone(
    trained, tmp_path, monkeypatch
):
    """Trained as the README says, into runs/guess."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "runs/guess")
    own = mue.evaluate("runs/guess", inputs=3, device="cpu")
    before = own.files[0].read_bytes()
    found = mue.evaluate("guess", inputs=3, device="cpu")
    assert own.files[0].read_bytes() == before
    folder = Path("runs/bundled/guess")
    assert found.files == (folder / "report-test.json", folder / "figures" / "health-test.png")


def test_a_metric_is_one_line(copy, lesions, tmp_path, monkeypatch):
    """It is in the report, in the table of slices, and in a comparison."""
    area = Metric(lambda m: m.s[:, 0].flatten(1).float().mean(dim=1), higher_is_better=True)
    monkeypatch.setitem(METRICS, "area", area)
    found = mue.evaluate(copy, data=lesions, device="cpu")
    assert found.report["area"].keys() == {"mean", "std", "low", "high"}
    header, *_ = found.files[1].read_text().splitlines()
    assert "area" in header.split(",")
    other = Path(shutil.copytree(copy, tmp_path / "other"))
    compared = mue.compare([copy, other], data=lesions, out=tmp_path / "out", device="cpu")
    assert compared.models[0].metrics["area"].mean == found.report["area"]["mean"]
    assert higher_is_better("area")
    assert not higher_is_better("ged")
