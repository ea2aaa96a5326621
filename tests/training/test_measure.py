import dataclasses
import itertools

import pytest
import torch

from mue.data.synthetic.toy import Bars
from mue.models.learner import VqLearner
from mue.runs.log import NonFiniteError
from mue.training.loop import Step, fit
from mue.training.measure import measure
from mue.training.state import Training
from mue.types import Case, Pair, Terms

CPU = torch.device("cpu")


class Broken(Bars):
    """Bars whose items from a certain number on are not numbers."""

    def __init__(self, first: int, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.first = first

    def pair(self, index) -> Pair:
        pair = super().pair(index)
        pair.x[index >= self.first] = float("nan")
        return pair

    def case(self, index) -> Case:
        raise NotImplementedError


@pytest.mark.parametrize("method", ["vq", "exact"])
def test_a_loss_that_is_not_finite_stops_with_its_step_and_term(tiny, method):
    steps = fit(Training(tiny(method, batch=256), CPU), Broken(first=3 * 256))
    for number in (1, 2, 3):
        assert measure(next(steps), 0.0).step == number
    words = r"the loss is not finite at step 4, .*: its term 'prior' is nan"
    with pytest.raises(NonFiniteError, match=words):
        measure(next(steps), 0.0)


def test_the_term_that_is_not_finite_is_the_one_named(tiny):
    """The commitment alone overflows: encodings of 1e30 are 1e60 from their codes, squared."""
    training = Training(tiny("vq"), CPU)
    assert isinstance(training.learner, VqLearner)
    training.step = 1  # past the start, which would put the codes onto the encodings
    training.learner.posterior.project.weight.data *= 1e30
    with pytest.raises(NonFiniteError, match=r"at step 2, .* its term 'commitment' is"):
        measure(next(fit(training, Bars())), 0.0)


def test_a_step_that_was_not_finite_is_noticed_later(tiny):
    """Looking only now and then misses nothing, and a bad step is not forgotten."""
    steps = fit(Training(tiny("exact", steps=5), CPU), Broken(first=8))
    *_, last = steps
    with pytest.raises(NonFiniteError, match="not finite at step 5, or was not shortly before"):
        measure(last, 0.0)


def test_a_learning_rate_that_is_far_too_high_is_noticed(tiny):
    steps = fit(Training(tiny("exact", steps=50, lr=1e30), CPU), Bars())
    with pytest.raises(NonFiniteError, match="the loss is not finite at step"):
        list(map(measure, steps, itertools.repeat(0.0)))


def test_a_log_record_has_the_peak_memory(tiny):
    assert measure(next(fit(Training(tiny(), CPU), Bars())), 0.0).memory > 50


def taken(number: int, terms: list[float], used: list[float], non_finite: float = 0.0) -> Step:
    values = Terms(*(torch.tensor(t) for t in terms))
    return Step(number, values, torch.tensor(used), torch.tensor(non_finite), lr=0.25)


def test_the_numbers_of_a_step_are_logged_as_they_are():
    step = taken(7, [1.0, 2.0, 0.5, -0.25], [1.0, 0.0, 1.0])
    found = dataclasses.asdict(measure(step, 1.23456))
    assert found.pop("memory") > 0
    assert found == {
        "step": 7,
        "prior": 1,
        "reconstruction": 2,
        "commitment": 0.5,
        "energy": -0.25,
        "total": 3.25,
        "codes": 2,
        "lr": 0.25,
        "seconds": 1.235,
    }


def test_terms_are_means_over_processes_and_a_code_that_one_uses_is_used(processes):
    steps = [
        taken(1, [1.0, 2.0, 0.0, 0.0], [1.0, 1.0, 0.0]),
        taken(1, [3.0, 5.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
    ]
    for found in processes(2, lambda rank: measure(steps[rank], 0.0)):
        assert (found.prior, found.reconstruction, found.total) == (2, 3.5, 5.5)
        assert found.codes == 2
    assert [s.used.tolist() for s in steps] == [[1, 1, 0], [1, 0, 0]]  # only read


def test_a_loss_that_is_not_finite_in_one_process_stops_all(processes):
    def work(rank: int) -> str:
        with pytest.raises(NonFiniteError) as stop:
            measure(taken(3, [1.0] * 4, [1.0], non_finite=1.0 * (rank == 1)), 0.0)
        return str(stop.value)

    words = "not finite at step 3, or was not shortly before: its term 'total' is 4.0"
    assert all(words in said for said in processes(2, work))
