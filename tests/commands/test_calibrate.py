import dataclasses
import itertools
import json
from pathlib import Path

import pytest
import torch

import mue
from mue.data.build import build_source
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import open_prepared
from mue.data.prepared.write import write_prepared
from mue.errors import MueError
from mue.metrics.energy import ged
from mue.runs.weights import load_tensors


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def few(patients, lesion, out: Path, counts: dict) -> Path:
    """Prepared slices of so many patients of each split."""
    names = itertools.chain.from_iterable(patients(split, n) for split, n in counts.items())
    items = [lesion(name, nodule, k) for name in names for nodule in (1, 2) for k in (9, 10)]
    write_prepared(items, out, {"form": "made up"})
    return out


def test_a_calibrated_model_is_another_folder_that_says_so(lesion_model, lesions, tmp_path):
    before = files(lesion_model)
    calls: list[tuple[str, int, int]] = []
    found = mue.calibrate(
        lesion_model,
        tmp_path / "new",
        data=lesions,
        half=False,
        device="cpu",
        progress=lambda *a: calls.append(a),
    )
    assert files(lesion_model) == before
    assert calls[-1] == ("lesion", 12, 12)
    assert found.folder == tmp_path / "new"
    assert {path.name for path in found.files} == set(files(found.folder))
    found = found.calibration
    assert found.after <= found.before
    old, new = (
        json.loads((f / "config.json").read_text()) for f in (lesion_model, tmp_path / "new")
    )
    about, modes = new.pop("calibration"), new["config"].pop("modes")
    assert old["config"].pop("modes") == {"cut": 0, "iou": 0.5, "coverage": [], "limits": []}
    assert old == new
    assert modes["cut"] == found.modes.cut > 0
    assert modes["coverage"] == list(found.modes.coverage)
    assert (about["split"], about["data"]) == ("val", open_prepared(lesions).digest)
    assert about["temperature"] == found.temperature
    assert about["shift"] == pytest.approx(found.shift.tolist(), abs=1e-4)
    assert (about["ged_before"], about["ged_after"]) == (found.before, found.after)
    weights = [load_tensors(f / "weights.safetensors") for f in (lesion_model, tmp_path / "new")]
    changed = {name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])}
    assert changed == {"prior.weight", "prior.bias"}


def test_a_calibrated_model_gives_the_same_answers_with_the_fitted_probabilities(
    lesion_model, lesions, tmp_path
):
    result = mue.calibrate(lesion_model, tmp_path / "new", data=lesions, half=False, device="cpu")
    found = result.calibration
    old, new = (mue.load(f, device="cpu") for f in (lesion_model, tmp_path / "new"))
    case = Slices(open_prepared(lesions), "val").case(torch.arange(12))
    z, after = old.network(case.x).log_prior, new.network(case.x).log_prior
    torch.testing.assert_close(after, (z / found.temperature + found.shift).log_softmax(dim=1))
    answers = []
    for predictor in (old, new):
        h = predictor.propose(case.x, 6, normalized=True)
        order = h.code.argsort(dim=1)
        rows = torch.arange(12)[:, None]
        answers.append(h.y[rows, order])
        value = ged(h.y > 0.5, h.normalized().prob, case.ys > 0.5, case.q).mean().item()
        expected = found.before if predictor is old else found.after
        assert value == pytest.approx(expected, abs=1e-3)
    assert torch.equal(*answers)


def test_in_half_precision_the_probabilities_are_almost_the_same(lesion_model, lesions, tmp_path):
    for half in (False, True):
        mue.calibrate(lesion_model, tmp_path / str(half), data=lesions, half=half, device="cpu")
    x = Slices(open_prepared(lesions), "val").case(torch.arange(12)).x
    whole, half = (
        mue.load(tmp_path / str(half), device="cpu").network(x).log_prior.exp()
        for half in (False, True)
    )
    torch.testing.assert_close(whole, half, atol=0.01, rtol=0)
    sizes = [(tmp_path / name / "weights.safetensors").stat().st_size for name in ("False", "True")]
    assert sizes[1] < sizes[0]


def test_the_patients_of_train_and_test_are_not_looked_at(
    patients, lesion, lesion_model, lesions, tmp_path
):
    """Without them the same temperature and the same shifts are found."""
    alone = few(patients, lesion, tmp_path / "val", {"val": 3})
    one = mue.calibrate(lesion_model, tmp_path / "a", data=lesions, device="cpu").calibration
    two = mue.calibrate(lesion_model, tmp_path / "b", data=alone, device="cpu").calibration
    assert (one.temperature, one.before, one.after) == (two.temperature, two.before, two.after)
    assert torch.equal(one.shift, two.shift)


def test_a_calibration_is_refused_where_it_makes_no_sense(
    patients, lesion, trained, lesion_model, lesions, tmp_path
):
    with pytest.raises(
        ValueError, match="--data must be left out for 'toy', whose inputs are generated"
    ):
        mue.calibrate(trained, tmp_path / "new", data=lesions, device="cpu")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(MueError, match="mine must be empty or not exist yet, and it holds files"):
        mue.calibrate(lesion_model, tmp_path / "mine", data=lesions, device="cpu")
    nobody = few(patients, lesion, tmp_path / "nobody", {"train": 2, "test": 1})
    with pytest.raises(ValueError, match="has no slice of a patient of the split 'val'; it has 3"):
        mue.calibrate(lesion_model, tmp_path / "new", data=nobody, device="cpu")
    assert not (tmp_path / "new").exists()


def test_a_model_without_probabilities_cannot_be_calibrated(lesion_baselines, lesions, tmp_path):
    for name, method in (("probunet", "probunet"), ("ensemble", "heads")):
        words = f"a model of the method '{method}' has no probabilities to calibrate; take one with"
        with pytest.raises(ValueError, match=words):
            mue.calibrate(lesion_baselines[name], tmp_path / "new", data=lesions, device="cpu")
    assert not (tmp_path / "new").exists()


def test_synthetic_inputs_are_calibrated_on_val(tmp_path):
    """The energy distance to the known modes falls, on items of val and of no other split."""
    found = mue.calibrate(
        "guess-exact", tmp_path / "new", inputs=32, seed=3, half=False, device="cpu"
    )
    assert found.calibration.after < found.calibration.before
    about = json.loads((found.folder / "config.json").read_text())["calibration"]
    assert (about["split"], about["inputs"], about["seed"]) == ("val", 32, 3)
    predictor = mue.load(found.folder, device="cpu")
    source = build_source(predictor.config.data, "val", seed=3, device=torch.device("cpu"))
    case = source.case(torch.arange(32))
    h = predictor.propose(case.x, predictor.codes, normalized=True)
    value = ged(h.y > 0.5, h.normalized().prob, case.ys > 0.5, case.q).mean().item()
    assert value == pytest.approx(found.calibration.after, abs=2e-3)


def test_vectors_are_not_calibrated(tmp_path):
    config = mue.preset("vector")
    train = dataclasses.replace(config.train, steps=1)
    folder = mue.train(dataclasses.replace(config, train=train), tmp_path / "run").folder
    with pytest.raises(mue.MueError, match=r"compares answers as masks, and .* vectors"):
        mue.calibrate(folder, tmp_path / "new", device="cpu")
    assert not (tmp_path / "new").exists()
