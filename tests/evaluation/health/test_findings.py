"""What is wrong, from numbers that a test makes up. Whole models are in test_report.py."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from mue.config.schema import ModesConfig
from mue.evaluation.health.findings import find
from mue.evaluation.health.measured import CodeHealth, Measured
from mue.inference.load import load
from mue.inference.predictor import Predictor


@pytest.fixture
def predictor(trained) -> Predictor:
    found = load(trained, device="cpu")
    assert found.cut == 0.5
    return found


def measured(n: int = 20, *, known: bool = False, units: int | None = None, **numbers) -> Measured:
    """Of n inputs with the same numbers, or with those that are given, which are those of a model
    whose two codes are right.
    """

    def each(name: str, default: float = 0.0) -> torch.Tensor:
        return torch.as_tensor(numbers.get(name, default), dtype=torch.float).expand(n)

    def codes(name: str) -> torch.Tensor:
        return torch.tensor(numbers.get(name, [0.5, 0.5])).expand(n, 2)

    return Measured(
        index=torch.arange(n),
        unit=torch.arange(n) % (units or n),
        unit_name="patients",
        category=("",) * n,
        known=known,
        n=2,
        ged=each("ged"),
        predicted=each("predicted", 0.5),
        observed=each("observed", 0.5),
        missed=each("missed"),
        differ=each("differ") > 0,
        spread=each("spread"),
        tv=each("tv"),
        code=torch.tensor([0, 1]).expand(n, 2),
        prior=codes("prior"),
        frequency=codes("by_mode"),
        by_mode=codes("by_mode"),
        cost=torch.zeros(n, 2),
        blends=torch.zeros(n, 2),
        alike=torch.eye(2).bool().expand(n, 2, 2),
    )


def code(c: int, *, prior: float = 0.5, blends: float = 0.0, duplicates=()) -> CodeHealth:
    return CodeHealth(c, prior, prior, 0.0, blends, tuple(duplicates))


TWO = (code(0), code(1))


def kinds(predictor: Predictor, held: Measured, codes: Any = TWO, train: Any = None) -> list[str]:
    findings, notes = find(held, train, codes, predictor)
    assert not notes
    return [finding.kind for finding in findings]


def test_a_model_that_is_right_has_no_findings(predictor):
    held = measured(known=True)
    assert find(held, held, TWO, predictor) == ([], [])


@pytest.mark.parametrize(("inputs", "found"), [(1, []), (3, ["one code"])])
def test_one_code_is_too_few_above_one_input_in_ten_with_different_answers(
    predictor, inputs, found
):
    held = measured(differ=(torch.arange(20) < inputs).float())
    assert kinds(predictor, held, [code(7)]) == found
    assert kinds(predictor, held) == []
    if found:
        (finding,), _ = find(held, None, [code(7)], predictor)
        assert finding.codes == (7,)
        assert "come from code 7, and the known answers to 15% of" in finding.description


def test_a_code_blends_above_one_input_in_ten(predictor):
    codes = [code(0, blends=0.1), code(3, blends=0.11)]
    (finding,), _ = find(measured(), None, codes, predictor)
    assert (finding.kind, finding.codes) == ("blend", (3,))
    assert "Code 3" in finding.description
    assert "11% of the inputs" in finding.description


@pytest.mark.parametrize(("missed", "found"), [(0.25, []), (0.26, ["misses"])])
def test_a_quarter_of_the_known_answers_may_be_missed(predictor, missed, found):
    assert kinds(predictor, measured(missed=missed)) == found


def test_answers_that_a_blend_explains_are_not_called_missed(predictor):
    assert kinds(predictor, measured(missed=1.0), [code(0, blends=1.0), code(1)]) == ["blend"]


@pytest.mark.parametrize(("count", "found"), [(3, []), (4, ["duplicates"])])
def test_four_codes_with_the_same_answer_are_named_once(predictor, count, found):
    same = range(count)
    codes = [code(c, duplicates=set(same) - {c}) for c in same]
    assert kinds(predictor, measured(), codes) == found


def test_a_code_below_one_percent_is_no_duplicate(predictor):
    codes = [code(c, prior=0.01, duplicates={0, 1, 2, 3} - {c}) for c in range(4)]
    (finding,), _ = find(measured(), None, codes, predictor)
    assert finding.codes == (0, 1, 2, 3)
    assert kinds(predictor, measured(), [*codes[:3], replace(codes[3], prior=0.0099)]) == []


@pytest.mark.parametrize(
    ("observed", "found"),
    [(0.46, []), (0.44, ["too sure"]), (0.54, []), (0.56, ["too unsure"])],
)
def test_the_first_mode_may_be_off_by_a_twentieth(predictor, observed, found):
    assert kinds(predictor, measured(observed=observed)) == found


def test_a_difference_that_may_be_chance_is_no_finding(predictor):
    """Its mean is 0.1, and its interval reaches 0."""
    observed = torch.where(torch.arange(20) < 11, 0.0, 0.89)
    assert measured(observed=observed).observed.mean() == pytest.approx(0.4, abs=0.001)
    assert kinds(predictor, measured(observed=observed)) == []


@pytest.mark.parametrize(
    ("tv", "known", "found"),
    [(0.04, True, []), (0.06, True, ["prior"]), (0.06, False, [])],
)
def test_known_probabilities_may_be_off_by_a_twentieth_on_average(predictor, tv, known, found):
    assert kinds(predictor, measured(known=known, tv=tv)) == found


def test_known_probabilities_may_be_far_off_for_one_input_in_twenty(predictor):
    few = torch.where(torch.arange(40) < 2, 0.9, 0.0)
    many = torch.where(torch.arange(40) < 4, 0.4, 0.0)
    assert few.mean() > many.mean() > 0.03
    assert kinds(predictor, measured(40, known=True, tv=many)) == ["prior"]
    assert kinds(predictor, measured(40, known=True, tv=few)) == []


def test_the_shares_of_a_hundred_samples_may_scatter_by_a_tenth_more(baselines):
    sampler = load(baselines["probunet"], device="cpu")
    assert kinds(sampler, measured(known=True, tv=0.14), ()) == []
    assert kinds(sampler, measured(known=True, tv=0.16), ()) == ["prior"]


@pytest.mark.parametrize(("prior", "found"), [(0.69, []), (0.71, ["prior"])])
def test_the_prior_of_the_codes_may_be_a_fifth_from_their_frequency(predictor, prior, found):
    """By hand: (|p - 0.5| + |0.5 - p|) / 2 = p - 0.5."""
    assert kinds(predictor, measured(prior=[prior, 1 - prior])) == found


@pytest.mark.parametrize(
    ("train", "held", "found"),
    [
        (0.2, 0.29, []),
        (0.2, 0.31, ["over-fitting"]),  # more than half as much again
        (0.02, 0.06, []),
        (0.02, 0.08, ["over-fitting"]),  # and by more than a tenth of the cut, 0.5
    ],
)
def test_held_back_inputs_may_be_answered_a_little_worse(predictor, train, held, found):
    assert kinds(predictor, measured(ged=held), train=measured(ged=train)) == found


@pytest.mark.parametrize("units", [4, 5])
def test_less_than_five_patients_are_too_few_for_probabilities(predictor, units):
    held = measured(units=units, observed=0.0, ged=1.0)
    findings, notes = find(held, measured(), TWO, predictor)
    few = "4 held-back patients are too few to judge the probabilities and over-fitting"
    assert notes == ([few] if units == 4 else [])
    assert [f.kind for f in findings] == ([] if units == 4 else ["too sure", "over-fitting"])


def test_the_remedy_is_calibration_unless_a_model_is_calibrated(predictor):
    modes = ModesConfig(coverage=(0.5,), limits=(0.4,))
    calibrated = Predictor(predictor.network, replace(predictor.config, modes=modes))
    held = measured(observed=0.0)
    (before,), (after,) = (find(held, None, TWO, p)[0] for p in (predictor, calibrated))
    assert "`mue calibrate`" in before.remedy
    assert "this model is calibrated already" in after.remedy
