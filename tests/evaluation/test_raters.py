import csv
import dataclasses
import json
from typing import Any

import pytest
import torch
from oracle import Oracle

from mue.config.schema import ModesConfig
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import open_prepared
from mue.evaluation.raters import RaterEvaluation, evaluate_raters
from mue.inference.load import load
from mue.inference.predictor import Predictor
from mue.metrics.calibration import annotated, brier, ece, presence
from mue.metrics.energy import ged, ged_n
from mue.metrics.matching import hm_iou_n
from mue.metrics.overlap import coverage_k, top_dice
from mue.metrics.ranked import modes_for
from mue.models.modal import Modal
from mue.modes import ModeRule
from mue.types import Case, Hypotheses

CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(scope="module")
def predictor(lesion_model):
    return load(lesion_model, device="cpu")


@pytest.fixture(scope="module")
def case(lesions) -> Case:
    """Every test slice."""
    source = Slices(open_prepared(lesions), "test")
    return source.case(torch.arange(len(source)))


def reported(found: RaterEvaluation) -> Any:
    """The report as a file would hold it, which must be numbers alone."""
    return json.loads(json.dumps(found.report(), allow_nan=False))


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 5, 32])
def test_every_metric_is_the_pure_function_of_all_answers_at_once(predictor, lesions, case, batch):
    found = evaluate_raters(predictor, lesions, batch=batch, seed=3)
    h = predictor.propose(case.x, 6, normalized=True)  # every code there is
    s, ys, p = h.y > 0.5, case.ys > 0.5, h.normalized().prob
    torch.testing.assert_close(found.columns["ged"], ged(s, p, ys, case.q), **CLOSE)
    for n in (16, 32, 50, 100):
        one = ged_n(s, p, ys, case.q, n, torch.Generator().manual_seed(3))
        torch.testing.assert_close(found.columns[f"ged_{n}"], one, **CLOSE)
    one = hm_iou_n(s, p, ys, 16, torch.Generator().manual_seed(3))
    torch.testing.assert_close(found.columns["hm_iou_16"], one, **CLOSE)
    modes = ModeRule().group(h.normalized())
    shown, count = modes.y > 0.5, modes.prob.shape[1]
    torch.testing.assert_close(found.columns["dice_top"], top_dice(shown, ys, case.q), **CLOSE)
    for k in (1, 2, 3):
        one = coverage_k(shown, ys, case.q, min(k, count))
        torch.testing.assert_close(found.columns[f"coverage_{k}"], one, **CLOSE)
    torch.testing.assert_close(found.mode_prob[:, :count], modes.prob, **CLOSE)
    assert torch.equal(found.columns["n90"], modes_for(modes.prob, 0.9).float())
    torch.testing.assert_close(found.columns["presence"], presence(s, p), **CLOSE)
    torch.testing.assert_close(found.columns["annotated"], annotated(ys, case.q), **CLOSE)
    torch.testing.assert_close(found.columns["entropy"], ModeRule().group(h).entropy(), **CLOSE)
    torch.testing.assert_close(found.columns["rest"], torch.zeros(12), **CLOSE)
    assert (found.id, found.patient) == (case.id, case.group)
    assert found.codes == len(h.code[h.prob > 0.01].unique())
    assert (found.split, found.data) == ("test", open_prepared(lesions).digest)
    report = reported(found)
    assert report["ged"]["mean"] == pytest.approx(found.columns["ged"].mean().item(), abs=1e-6)
    assert report["presence"]["ece"]["mean"] == pytest.approx(
        ece(found.columns["presence"], found.columns["annotated"]).item()
    )
    assert report["presence"]["brier"]["mean"] == pytest.approx(
        brier(found.columns["presence"], found.columns["annotated"]).mean().item()
    )


@pytest.mark.parametrize("sharpness", [1, 100])
def test_an_evaluation_does_not_depend_on_the_batch_size(lesion_model, lesions, sharpness):
    """Also where some answers are so improbable that they need not be decoded."""
    predictor, seen = load(lesion_model, device="cpu"), []
    assert isinstance(predictor.network, Modal)
    predictor.network.prior.weight *= sharpness
    whole = evaluate_raters(predictor, lesions, batch=12)
    for batch in (1, 5):
        parts = evaluate_raters(predictor, lesions, batch=batch, progress=lambda *a: seen.append(a))
        for name, values in whole.columns.items():
            torch.testing.assert_close(parts.columns[name], values, **CLOSE, msg=name)
        assert (parts.id, parts.codes) == (whole.id, whole.codes)
    assert seen == [*((i, 12) for i in range(1, 13)), (5, 12), (10, 12), (12, 12)]


def test_an_answer_too_improbable_to_be_kept_covers_nobody(predictor, lesions, case):
    """By hand: the raters' own mask comes with probability 0, as it does where it is not kept."""

    def answer(x):
        at = [int((case.x == one).flatten(1).all(dim=1).nonzero()[0, 0]) for one in x]
        y = torch.stack([torch.ones_like(case.ys[at, 0]), case.ys[at, 0]], dim=1)
        prob = torch.tensor([1.0, 0.0]).expand(len(at), 2)
        return Hypotheses(y, prob, torch.tensor([0, 1]).expand(len(at), 2))

    found = evaluate_raters(Oracle(predictor, answer), lesions)
    for k in (1, 2, 3):
        assert torch.equal(found.columns[f"coverage_{k}"], torch.zeros(12))
    assert torch.equal(found.columns["in_no_mode"], torch.ones(12))


def test_the_raters_own_answers_have_no_error(predictor, lesions, case):
    def answer(x):
        at = [int((case.x == one).flatten(1).all(dim=1).nonzero()[0, 0]) for one in x]
        order = torch.arange(4).expand(len(at), 4)
        return Hypotheses(case.ys[at], torch.full((len(at), 4), 0.25), order)

    found = evaluate_raters(Oracle(predictor, answer), lesions, batch=5)
    torch.testing.assert_close(found.columns["ged"], torch.zeros(12), **CLOSE)
    torch.testing.assert_close(found.columns["presence"], found.columns["annotated"])
    assert torch.equal(found.columns["in_no_mode"], torch.zeros(12))
    torch.testing.assert_close(found.mode_share, found.mode_prob)  # each rater is in their own
    order = torch.arange(4).expand(12, 4)
    distinct = ModeRule().group(Hypotheses(case.ys, torch.full((12, 4), 0.25), order))
    torch.testing.assert_close(found.columns["entropy"], distinct.entropy())
    assert found.codes == 4
    report = reported(found)
    assert report["presence"]["ece"]["mean"] == pytest.approx(0, abs=1e-6)
    assert report["presence"]["brier"]["mean"] == pytest.approx(0, abs=1e-6)
    # Samples add E[d(S, S')] / n, where d is between the raters: more samples, less of it.
    means = [report[f"ged_{n}"]["mean"] for n in (16, 32, 50, 100)]
    assert means[0] > means[-1] > 0


def test_only_the_samples_depend_on_the_seed(predictor, lesions):
    one, again = (evaluate_raters(predictor, lesions, seed=0) for _ in range(2))
    other = evaluate_raters(predictor, lesions, seed=1)
    assert all(torch.equal(again.columns[name], values) for name, values in one.columns.items())
    moved = {
        name for name, values in one.columns.items() if not torch.equal(other.columns[name], values)
    }
    assert moved == {"ged_16", "ged_32", "ged_50", "ged_100", "hm_iou_16"}


def test_the_rest_is_the_probability_beyond_sixteen_answers(predictor, lesions):
    """By hand: 20 answers of probability 0.04 and one of 0.2; 0.2 + 15 * 0.04 = 0.8 is kept."""

    def answer(x):
        prob = torch.tensor([0.2] + 20 * [0.04]).expand(len(x), 21)
        y = torch.zeros(len(x), 21, 1, 16, 16)
        y[:, 16:] = 1  # of no concern to `ged`, and known to the samples and to presence
        return Hypotheses(y, prob, torch.zeros(len(x), 21, dtype=torch.long))

    found = evaluate_raters(Oracle(predictor, answer), lesions)
    torch.testing.assert_close(found.columns["rest"], torch.full((12,), 0.2))
    torch.testing.assert_close(found.columns["presence"], torch.full((12,), 0.2))
    empty = (
        1 - found.columns["annotated"]
    )  # nothing against the raters: 2 (1 - e) - 0 - E[d(Y, Y')]
    assert (found.columns["ged"][found.columns["annotated"] == 0] == 0).all()
    torch.testing.assert_close(found.columns["coverage_1"], empty)  # the 16 empty ones are a mode
    torch.testing.assert_close(found.mode_prob, torch.tensor([[0.8, 0.2]]).expand(12, 2))


def test_evaluating_leaves_every_tensor_of_the_model_as_it_was(predictor, lesions):
    before = {name: value.clone() for name, value in predictor.network.state_dict().items()}
    evaluate_raters(predictor, lesions)
    after = predictor.network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_each_split_is_judged_by_its_own_patients(predictor, lesions, split):
    found = evaluate_raters(predictor, lesions, split=split)
    prepared = open_prepared(lesions)
    assert found.id == tuple(prepared.rows[i].id for i in prepared.members(split))
    assert found.report()["split"] == split


# --- report and table -----------------------------------------------------------------------------


def test_a_report_has_every_metric_with_its_interval_and_only_numbers(predictor, lesions):
    found = evaluate_raters(predictor, lesions)
    report = reported(found)
    assert report == found.report()
    names = ["ged", "rest", "ged_16", "ged_32", "ged_50", "ged_100", "hm_iou_16", "dice_top"]
    names += ["coverage_1", "coverage_2", "coverage_3", "n90", "in_no_mode"]
    for name in names:
        values = report[name]
        assert values.keys() == {"mean", "std", "low", "high"}, name
        assert values["low"] <= values["mean"] + 1e-9, name
        assert values["mean"] <= values["high"] + 1e-9, name
    assert report["presence"]["ece"].keys() == {"mean", "low", "high"}  # one number for all slices
    bins = report["presence"]["reliability"]
    assert sum(b["count"] for b in bins) == 12
    assert all(b["count"] > 0 for b in bins)
    assert (report["slices"], report["patients"], report["passes"]) == (12, 3, 1)
    assert report["codes_in_use"] in range(1, 7)


def test_the_table_has_a_line_for_each_slice(predictor, lesions, tmp_path):
    found = evaluate_raters(predictor, lesions)
    found.save_table(tmp_path / "slices.csv")
    with (tmp_path / "slices.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == list(found.id)
    assert [row["patient"] for row in rows] == list(found.patient)
    for name, values in found.columns.items():
        assert [float(row[name]) for row in rows] == pytest.approx(values.tolist(), rel=1e-5)


# --- what is refused ------------------------------------------------------------------------------


def test_a_model_of_a_game_is_refused(trained, lesions):
    words = "--data must be left out for 'toy', whose inputs are generated"
    with pytest.raises(ValueError, match=words):
        evaluate_raters(load(trained, device="cpu"), lesions)


def test_a_folder_that_holds_no_slices_is_refused(predictor, tmp_path):
    with pytest.raises(ValueError, match=r"is not prepared data: it must hold meta.json; make it"):
        evaluate_raters(predictor, tmp_path)


# --- by code, paired, promised --------------------------------------------------------------------


def test_by_code_each_answer_stands_alone(predictor, lesions, case):
    found = evaluate_raters(predictor, lesions, by="code")
    h = predictor.propose(case.x, 6, normalized=True).normalized()
    s, ys = h.y > 0.5, case.ys > 0.5
    torch.testing.assert_close(found.mode_prob, h.prob, **CLOSE)
    torch.testing.assert_close(found.columns["dice_top"], top_dice(s, ys, case.q), **CLOSE)
    torch.testing.assert_close(found.columns["coverage_2"], coverage_k(s, ys, case.q, 2), **CLOSE)


def test_differences_are_paired(predictor, lesions):
    one, two = (evaluate_raters(predictor, lesions, by=by) for by in ("mode", "code"))
    found = one.difference(two)
    for name in ("dice_top", "n90"):
        gap = (one.columns[name] - two.columns[name]).mean().item()
        assert found[name].mean == pytest.approx(gap, abs=1e-6)
    assert found["ged"].low == found["ged"].high == 0
    p, share = two.mode_prob, two.mode_share
    theirs = ece(p[p > 0], share[p > 0]).item()
    p, share = one.mode_prob, one.mode_share
    assert found["mode ece"].mean == pytest.approx(ece(p[p > 0], share[p > 0]).item() - theirs)


def test_a_promise_is_reported_beside_what_was_seen(predictor, lesions):
    modes = ModesConfig(cut=0.5, coverage=(0.5, 0.9), limits=(0.0, 1.0))
    config = dataclasses.replace(predictor.config, modes=modes)
    rows = evaluate_raters(Predictor(predictor.network, config), lesions).coverage()
    assert [row["promised"] for row in rows] == [0.5, 0.9]
    assert rows[0]["modes"] == 1
    assert rows[0]["covered"] <= rows[1]["covered"]


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [12, 5])
def test_ged_weighs_all_samples_and_ged_n_the_first_n(lesion_baselines, lesions, case, batch):
    """Against the pure functions, on the samples of the same generator."""
    predictor = load(lesion_baselines["probunet"], device="cpu")
    found = evaluate_raters(predictor, lesions, samples=40, seed=3, batch=batch)
    generator = torch.Generator().manual_seed(3)
    y = torch.cat(
        [
            predictor.propose(x, 40, generator=generator, normalized=True).y
            for x in case.x.split(batch)
        ]
    )
    s, ys = y > 0.5, case.ys > 0.5

    def of(n):
        return ged(s[:, :n], torch.full((12, n), 1 / n), ys, case.q)

    torch.testing.assert_close(found.columns["ged"], of(40), **CLOSE)
    assert {"ged_16", "ged_32"} == found.columns.keys() & {f"ged_{n}" for n in (16, 32, 50, 100)}
    for n in (16, 32):  # there are not 50
        torch.testing.assert_close(found.columns[f"ged_{n}"], of(n), **CLOSE)
    h = Hypotheses(y, torch.full((12, 40), 1 / 40), torch.full((12, 40), -1))
    shown = ModeRule().group(h).y > 0.5  # samples are grouped as codes are
    torch.testing.assert_close(found.columns["dice_top"], top_dice(shown, ys, case.q), **CLOSE)
    one = coverage_k(shown, ys, case.q, 1)
    torch.testing.assert_close(found.columns["coverage_1"], one, **CLOSE)
    share = s.flatten(2).any(dim=2).float().mean(dim=1)
    torch.testing.assert_close(found.columns["presence"], share, **CLOSE)
    assert (found.answers, found.passes, found.codes) == (40, 1, 0)
    report = reported(found)
    assert (report["answers"], report["passes"]) == (40, 1)


def test_an_ensemble_is_judged_by_its_members(lesion_baselines, lesions, case):
    predictor = load(lesion_baselines["ensemble"], device="cpu")
    found = evaluate_raters(predictor, lesions, seed=3)
    s, ys = predictor.propose(case.x, 2, normalized=True).y > 0.5, case.ys > 0.5
    half = torch.full((12, 2), 0.5)
    torch.testing.assert_close(found.columns["ged"], ged(s, half, ys, case.q), **CLOSE)
    sampled_16 = ged_n(s, half, ys, case.q, 16, torch.Generator().manual_seed(3))
    torch.testing.assert_close(found.columns["ged_16"], sampled_16, **CLOSE)  # with replacement
    assert (found.answers, found.passes) == (2, 2)
