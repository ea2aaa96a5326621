import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from mue.commands import review
from mue.data.prepared.dataset import Slices
from mue.data.prepared.store import open_prepared, write_prepared
from mue.evaluation.raters import evaluate_raters
from mue.inference.load import load
from mue.metrics.energy import ged
from mue.training.checkpoint import RunError, load_tensors


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def picture(path: Path) -> tuple[int, int]:
    """The size of a picture that is one, and not blank."""
    with Image.open(path) as file:
        assert len(file.convert("L").getcolors() or range(256)) > 10
        return file.size


def few(patients, lesion, out: Path, counts: dict) -> Path:
    """Prepared slices of so many patients of each split."""
    names = itertools.chain.from_iterable(patients(split, n) for split, n in counts.items())
    items = [lesion(name, nodule, k) for name in names for nodule in (1, 2) for k in (9, 10)]
    write_prepared(items, out, {"form": "made up"})
    return out


# --- inspect --------------------------------------------------------------------------------------


def test_what_is_inside_is_counted_and_shown(lesions, tmp_path):
    found = review.inspect(lesions, tmp_path / "sheet.png", verify=True)
    assert (found.patients, found.nodules, found.slices) == (10, 20, 40)
    assert found.splits == {"train": (4, 16), "val": (3, 12), "test": (3, 12)}
    assert (found.size, found.spacing, found.form) == ((16, 16), None, "made up")
    prepared = open_prepared(lesions)
    drawn = [int(masks.any(axis=1).sum()) for masks in prepared.masks]
    assert found.drawn == tuple(drawn.count(n) for n in range(5))
    assert found.digest == prepared.digest
    assert found.sheet == tmp_path / "sheet.png"
    picture(found.sheet)


def test_the_sheet_goes_to_the_folder_of_runs_unless_told_otherwise(lesions, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = files(lesions)
    found = review.inspect(lesions)
    assert found.sheet == Path("runs/prepared-sheet.png")
    assert files(lesions) == before


def test_spacing_is_a_range_where_it_is_known(lesion, tmp_path):
    items = [lesion("p", 1, k) for k in range(3)]
    for item, spacing in zip(items, (0.7, None, 0.5), strict=True):
        object.__setattr__(item, "spacing", spacing)
    write_prepared(items, tmp_path / "out", {})
    found = review.inspect(tmp_path / "out", tmp_path / "sheet.png")
    assert (found.spacing, found.form) == ((0.5, 0.7), "unknown")
    assert found.slices == 3


def test_an_inspection_that_verifies_finds_what_was_altered(lesions, tmp_path):
    copy = Path(shutil.copytree(lesions, tmp_path / "copy"))
    content = bytearray((copy / "masks.npy").read_bytes())
    content[-1] ^= 1
    (copy / "masks.npy").write_bytes(content)
    review.inspect(copy, tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"masks.npy is not what was imported; import it again"):
        review.inspect(copy, tmp_path / "b.png", verify=True)
    assert not (tmp_path / "b.png").exists()


# --- calibrate ------------------------------------------------------------------------------------


def test_a_calibrated_model_is_another_folder_that_says_so(lesion_model, lesions, tmp_path):
    before = files(lesion_model)
    told: list[tuple[int, int]] = []
    found = review.calibrate(
        lesion_model,
        lesions,
        tmp_path / "new",
        half=False,
        device="cpu",
        watch=lambda *a: told.append(a),
    )
    assert files(lesion_model) == before
    assert told[-1] == (12, 12)
    assert found.after <= found.before
    old, new = (
        json.loads((f / "config.json").read_text()) for f in (lesion_model, tmp_path / "new")
    )
    about = new.pop("calibration")
    assert old == new
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
    found = review.calibrate(lesion_model, lesions, tmp_path / "new", half=False, device="cpu")
    old, new = (load(f, device="cpu") for f in (lesion_model, tmp_path / "new"))
    case = Slices(open_prepared(lesions), "val").case(torch.arange(12))
    z, after = old.network(case.x).log_prior, new.network(case.x).log_prior
    torch.testing.assert_close(after, (z / found.temperature + found.shift).log_softmax(dim=1))
    answers = []
    for predictor in (old, new):
        h = predictor.propose(case.x, 6)
        order = h.code.argsort(dim=1)
        rows = torch.arange(12)[:, None]
        answers.append(h.y[rows, order])
        value = ged(h.y > 0.5, h.normalized().prob, case.ys > 0.5, case.q).mean().item()
        expected = found.before if predictor is old else found.after
        assert value == pytest.approx(expected, abs=1e-3)
    assert torch.equal(*answers)


def test_in_half_precision_the_probabilities_are_almost_the_same(lesion_model, lesions, tmp_path):
    for half in (False, True):
        review.calibrate(lesion_model, lesions, tmp_path / str(half), half=half, device="cpu")
    x = Slices(open_prepared(lesions), "val").case(torch.arange(12)).x
    whole, half = (
        load(tmp_path / str(half), device="cpu").network(x).log_prior.exp()
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
    one = review.calibrate(lesion_model, lesions, tmp_path / "a", device="cpu")
    two = review.calibrate(lesion_model, alone, tmp_path / "b", device="cpu")
    assert (one.temperature, one.before, one.after) == (two.temperature, two.before, two.after)
    assert torch.equal(one.shift, two.shift)


def test_a_calibration_is_refused_where_it_makes_no_sense(
    patients, lesion, trained, lesion_model, lesions, tmp_path
):
    with pytest.raises(
        ValueError, match="--data must be left out for 'toy', whose inputs are generated"
    ):
        review.calibrate(trained, lesions, tmp_path / "new", device="cpu")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(RunError, match="mine must be empty or not exist yet, and it holds files"):
        review.calibrate(lesion_model, lesions, tmp_path / "mine", device="cpu")
    nobody = few(patients, lesion, tmp_path / "nobody", {"train": 2, "test": 1})
    with pytest.raises(ValueError, match="has no slice of a patient of the split 'val'; it has 3"):
        review.calibrate(lesion_model, nobody, tmp_path / "new", device="cpu")
    assert not (tmp_path / "new").exists()


def test_a_model_without_probabilities_cannot_be_calibrated(lesion_baselines, lesions, tmp_path):
    for name, method in (("probunet", "probunet"), ("ensemble", "heads")):
        words = f"a model of the method '{method}' has no probabilities to calibrate; take one with"
        with pytest.raises(ValueError, match=words):
            review.calibrate(lesion_baselines[name], lesions, tmp_path / "new", device="cpu")
    assert not (tmp_path / "new").exists()


# --- figure ---------------------------------------------------------------------------------------


def test_one_model_has_its_figures_in_its_folder(lesion_model, lesions, tmp_path):
    copy = Path(shutil.copytree(lesion_model, tmp_path / "copy"))
    drawn = review.figure([copy], lesions, device="cpu")
    names = ["spread.png", "reliability.png", "cases.png", "codes.png", "history.png"]
    assert drawn == [copy / "figures" / name for name in names]
    for path in drawn:
        picture(path)


@pytest.fixture
def two(lesion_model, lesions, tmp_path) -> list[Path]:
    """A model and its calibrated self."""
    one = Path(shutil.copytree(lesion_model, tmp_path / "one"))
    review.calibrate(one, lesions, tmp_path / "two", device="cpu")
    return [one, tmp_path / "two"]


def test_two_models_share_the_spread_and_have_folders_of_their_own(two, lesions, tmp_path):
    told = []
    drawn = review.figure(
        two,
        lesions,
        split="val",
        out=tmp_path / "out",
        device="cpu",
        watch=lambda *a: told.append(a),
    )
    assert len(set(drawn)) == len(drawn)
    found = {str(path.relative_to(tmp_path / "out")) for path in drawn}
    shared = {"spread.png", "reliability.png"}
    own = {
        f"{name}/{file}.png" for name in ("one", "two") for file in ("cases", "codes", "history")
    }
    assert found == shared | own
    for path in drawn:
        picture(path)
    assert {a[0] for a in told} == {str(path) for path in two}


def test_models_of_one_name_cannot_share_a_figure(lesion_model, lesions, tmp_path):
    """Their figures would go to one folder, and one would hide the other."""
    pair = [Path(shutil.copytree(lesion_model, tmp_path / name / "best")) for name in "ab"]
    with pytest.raises(ValueError, match="`models` must have different names"):
        review.figure(pair, lesions, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_cases_are_the_slices_of_highest_entropy_one_of_a_patient(lesion_model, lesions):
    judged = evaluate_raters(load(lesion_model, device="cpu"), lesions)
    chosen = review._ambiguous(judged, 6)
    assert len(chosen) == 3  # there are three patients
    assert len({judged.patient[i] for i in chosen}) == 3
    entropy = judged.entropy.tolist()
    assert [entropy[i] for i in chosen] == sorted((entropy[i] for i in chosen), reverse=True)
    for i in chosen:
        mine = [entropy[j] for j in range(12) if judged.patient[j] == judged.patient[i]]
        assert entropy[i] == max(mine)
    assert review._ambiguous(judged, 2) == chosen[:2]


def test_a_model_of_a_game_has_no_figures_of_slices(trained, lesions, tmp_path):
    with pytest.raises(ValueError, match=r"this model answers 'toy', and .* holds slices"):
        review.figure([trained], lesions, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_a_sampler_has_its_samples_drawn_and_no_codes(lesion_baselines, lesions, tmp_path):
    drawn = review.figure([lesion_baselines["probunet"]], lesions, out=tmp_path, device="cpu")
    names = ["spread.png", "reliability.png", "cases.png", "history.png"]
    assert drawn == [tmp_path / name for name in names]
    for path in drawn:
        picture(path)
