from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mue.data.synthetic.guess import GuessingGame
from mue.data.synthetic.toy import Bars
from mue.data.synthetic.vector import Rotations
from mue.types import Case, Hypotheses, Terms


def ranking(prob: list[float], y: list[float] | None = None) -> Hypotheses:
    """One input whose answers are numbers, by default 0, 1, 2, ..., with codes 10, 11, 12, ..."""
    k = len(prob)
    answers = torch.arange(float(k)) if y is None else torch.tensor(y)
    return Hypotheses(answers.view(1, k, 1), torch.tensor([prob]), torch.arange(10, 10 + k)[None])


def gap(a: Tensor, b: Tensor) -> Tensor:
    """Distance of numbers."""
    return (a - b.mT).abs()


# --- what is valid ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prob", "words"),
    [
        ([0.2, 0.6], "`prob` must be descending along k; sort before"),
        ([0.8, 0.4], r"`prob` must sum to at most 1 for each input, got 1\.2000"),
        ([0.5, -0.1], "`prob` must be a number of at least 0"),
        ([0.5, float("nan")], "`prob` must be a number of at least 0"),
    ],
)
def test_a_ranking_that_nobody_could_trust_is_refused(prob, words):
    with pytest.raises(ValueError, match=words):
        ranking(prob)


@pytest.mark.parametrize("q", [[0.5, 0.6], [1.5, -0.5], [0.5, float("nan")]])
def test_weights_of_a_case_that_are_no_distribution_are_refused(q):
    with pytest.raises(ValueError, match="`q` must be non-negative and sum to 1"):
        Case(torch.zeros(1, 1), torch.zeros(1, 2, 1), torch.tensor([q]), ("a",), ("g",))


def test_names_of_a_case_that_do_not_fit_its_inputs_are_refused():
    q = torch.tensor([[0.5, 0.5]])
    with pytest.raises(ValueError, match=r"a Case of 1 inputs needs as many .* got 2 and 1"):
        Case(torch.zeros(1, 1), torch.zeros(1, 2, 1), q, ("a", "b"), ("g",))


def test_a_case_says_whether_its_answers_are_all_there_are():
    """Generated data do; what some raters answered is the default."""
    one = Case(torch.zeros(1, 1), torch.zeros(1, 1, 1), torch.ones(1, 1), ("a",), ("g",))
    assert (one.known, one.patients) == (False, False)
    said = replace(one, known=True, patients=True).cpu()
    assert (said.known, said.patients) == (True, True)
    for source in (Bars(), Rotations(), GuessingGame("test")):
        case = source.case(torch.arange(2))
        assert (case.known, case.patients) == (True, False)


def test_the_total_is_the_sum_of_the_terms():
    terms = Terms(torch.tensor(1.0), torch.tensor(2.0), torch.tensor(4.0), torch.tensor(8.0))
    assert terms.total == 15
    assert list(terms.by_name()) == ["prior", "reconstruction", "commitment", "energy", "total"]


# --- what a ranking says ------------------------------------------------------------------------


def test_rest_is_what_was_left_out():
    h = ranking([0.6, 0.3])
    assert h.rest.item() == pytest.approx(0.1)
    assert h.normalized().rest.item() == pytest.approx(0, abs=1e-6)
    assert h.normalized().prob[0].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_the_expected_answer_weighs_those_kept():
    assert ranking([0.6, 0.2], y=[1.0, 5.0]).expected().item() == pytest.approx(0.75 + 0.25 * 5)


def test_entropy_counts_the_rest_as_one_more_answer():
    equal = torch.tensor(3.0).log().item()
    assert ranking([1 / 3, 1 / 3, 1 / 3]).entropy().item() == pytest.approx(equal, abs=1e-5)
    assert ranking([1 / 3, 1 / 3]).entropy().item() == pytest.approx(equal, abs=1e-5)
    assert ranking([1.0, 0.0]).entropy().item() == 0


# --- sampling -----------------------------------------------------------------------------------


def test_answers_are_sampled_as_often_as_they_are_probable():
    n = 20_000
    sampled = ranking([0.4, 0.3, 0.1]).sample(n, torch.Generator().manual_seed(0))
    for answer, p in enumerate([0.5, 0.375, 0.125]):  # among those kept: divided by 0.8
        share = (sampled.y == answer).float().mean().item()
        assert abs(share - p) < 4 * (p * (1 - p) / n) ** 0.5
    assert torch.equal(sampled.code, 10 + sampled.y[..., 0].long())
    torch.testing.assert_close(sampled.prob, torch.full((1, n), 1 / n))


def test_samples_are_the_generators():
    h = ranking([0.4, 0.3, 0.2, 0.1])
    one, same, other = (h.sample(50, torch.Generator().manual_seed(s)).code for s in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_sampling_nothing_is_refused():
    with pytest.raises(ValueError, match="`n`, the number of samples, must be at least 1, got 0"):
        ranking([1.0]).sample(0)
