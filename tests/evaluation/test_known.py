import math

import pytest
import torch
from oracle import Oracle

from mue.data.build import build_source
from mue.evaluation.known import ModeEvaluation, evaluate_modes, summary
from mue.inference.load import load
from mue.metrics.modes import nearest_mode
from mue.models.modal import Modal
from mue.types import Hypotheses

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def predictor(trained):
    return load(trained, device="cpu")


@pytest.fixture
def scores() -> ModeEvaluation:
    return ModeEvaluation(
        predicted=torch.tensor([[0.5, 0.25], [0.75, 0.25], [0.1, 0.9]]),
        true=torch.tensor([[0.75, 0.25], [0.75, 0.25], [0.2, 0.8]]),
        rest=torch.tensor([0.25, 0.0, 0.0]),
        group=("dim", "dim", "bright"),
        modes=torch.tensor([2, 2, 3]),
        codes=3,
        k=2,
        split="test",
        seed=7,
    )


def test_the_table_by_hand(scores):
    table = [tuple(row.values()) for row in scores.rows()]
    assert list(scores.rows()[0]) == ["group", "mode", "true", "predicted", "deviation"]
    expected = [
        ("bright", 1, 0.2, 0.1, 0),
        ("bright", 2, 0.8, 0.9, 0),
        ("dim", 1, 0.75, (0.5 + 0.75) / 2, 0.125),
        ("dim", 2, 0.25, 0.25, 0),
    ]
    assert [row[:2] for row in table] == [row[:2] for row in expected]
    for found, wanted in zip(table, expected, strict=True):
        assert found[2:] == pytest.approx(wanted[2:])


def test_the_report_by_hand(scores):
    report = scores.report()
    tv = [(0.25 + 0.25) / 2, 0, 0.1]  # what was not decoded counts as wrong
    assert report.pop("mode_tv") == pytest.approx(
        {"mean": sum(tv) / 3, "std": _std(tv), "p95": 0.235}
    )
    mae = [0.125, 0, 0.1]
    assert report.pop("mode_mae") == pytest.approx(
        {"mean": sum(mae) / 3, "std": _std(mae), "p95": 0.1225}
    )
    assert report.pop("rest")["mean"] == pytest.approx(0.25 / 3)
    assert report.pop("table") == scores.rows()
    assert report.pop("modes") == {"min": 2, "max": 3}
    assert report == {"split": "test", "inputs": 3, "seed": 7, "k": 2, "codes_in_use": 3}


def _std(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))


def test_a_summary_by_hand():
    found = summary(torch.arange(101).float())
    assert found == pytest.approx({"mean": 50, "std": math.sqrt((101**2 - 1) / 12), "p95": 95})


@pytest.mark.parametrize("sharpness", [1, 100])
def test_an_evaluation_does_not_depend_on_the_batch_size(trained, sharpness):
    """Also where some answers are so improbable that they need not be decoded."""
    predictor, calls = load(trained, device="cpu"), []
    assert isinstance(predictor.network, Modal)
    predictor.network.prior.weight *= sharpness
    whole = evaluate_modes(predictor, inputs=23, seed=3, k=4, batch=23)
    parts = evaluate_modes(
        predictor, inputs=23, seed=3, k=4, batch=5, progress=lambda *a: calls.append(a)
    )
    torch.testing.assert_close(whole.predicted, parts.predicted, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(whole.rest, parts.rest, atol=1e-6, rtol=0)
    assert torch.equal(whole.true, parts.true)
    assert (whole.group, whole.codes) == (parts.group, parts.codes)
    assert calls == [(n, 23) for n in (5, 10, 15, 20, 23)]


def test_other_seeds_are_other_inputs_and_more_inputs_begin_with_the_same(predictor):
    one, more = evaluate_modes(predictor, inputs=10), evaluate_modes(predictor, inputs=20)
    assert more.group[:10] == one.group
    torch.testing.assert_close(more.predicted[:10], one.predicted)
    assert not torch.equal(evaluate_modes(predictor, inputs=10, seed=1).predicted, one.predicted)


def test_evaluating_leaves_every_tensor_of_the_model_as_it_was(predictor):
    before = {name: value.clone() for name, value in predictor.network.state_dict().items()}
    evaluate_modes(predictor, inputs=20)
    after = predictor.network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_an_oracle_has_no_error(predictor):
    """An oracle with both bars and their probabilities has no error, and two codes in use."""

    def answer(x):
        rows = (x[:, 0, :, 0] > 0).nonzero()[:, 1].view(len(x), 2)
        bars = torch.nn.functional.one_hot(rows, 8).float()[:, :, None, :, None]
        upper = torch.where(x.amax(dim=(1, 2, 3)) > 0.7, 0.2, 0.7)
        prob, order = torch.stack([upper, 1 - upper], 1).sort(dim=1, descending=True)
        y = bars.expand(-1, -1, 1, 8, 8)[torch.arange(len(x))[:, None], order]
        return Hypotheses(y, prob, order)

    oracle = Oracle(predictor, answer)
    found = evaluate_modes(oracle, inputs=50, k=2).report()
    assert found["mode_tv"] == pytest.approx({"mean": 0, "std": 0, "p95": 0}, abs=1e-6)
    assert found["codes_in_use"] == 2
    assert all(k == 2 and min_prob < 0.001 for k, min_prob in oracle.asked)


def test_a_code_is_in_use_when_it_is_likelier_than_one_percent_for_some_input(predictor):
    """By hand: code 0 always, code 1 for the last input alone, code 2 just not."""

    def answer(x):
        prob = torch.tensor([0.98, 0.005, 0.004]).repeat(len(x), 1)
        prob[-1] = torch.tensor([0.9, 0.02, 0.0099])
        return Hypotheses(torch.zeros(len(x), 3, 1, 8, 8), prob, torch.arange(3).repeat(len(x), 1))

    oracle = Oracle(predictor, answer)
    assert evaluate_modes(oracle, inputs=7, k=3, batch=4).codes == 2
    assert all(k == 3 and min_prob < 0.001 for k, min_prob in oracle.asked)


def test_k_beyond_the_code_book_is_the_whole_code_book(predictor):
    found = evaluate_modes(predictor, inputs=3, k=16)
    assert found.k == 6
    torch.testing.assert_close(found.rest, torch.zeros(3), atol=1e-5, rtol=0)


@pytest.mark.parametrize("inputs", [0, -5])
def test_no_inputs_are_refused(predictor, inputs):
    with pytest.raises(ValueError, match=rf"`inputs` must be in 1..1000000000, got {inputs}"):
        evaluate_modes(predictor, inputs=inputs)


# --- baselines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["probunet", "dropout", "ensemble"])
def test_the_mode_probabilities_of_a_baseline_are_shares_of_its_answers(baselines, name):
    predictor = load(baselines[name], device="cpu")
    found = evaluate_modes(predictor, inputs=6, seed=2, k=20)
    k = 20 if predictor.is_sampler else 3
    assert (found.k, found.codes) == (k, 0)
    counts = found.predicted * k
    torch.testing.assert_close(counts, counts.round(), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.predicted.sum(dim=1), torch.ones(6))
    assert torch.equal(evaluate_modes(predictor, inputs=6, seed=2, k=20).predicted, found.predicted)
    case = build_source(predictor.config.data, "test", seed=2, device=CPU).case(torch.arange(6))
    h = predictor.propose(case.x, k, generator=torch.Generator().manual_seed(2), normalized=True)
    for i, mode in enumerate(nearest_mode(h.y, case.ys)):
        share = torch.bincount(mode, minlength=2) / k
        torch.testing.assert_close(found.predicted[i], share)
