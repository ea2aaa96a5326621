import dataclasses
import itertools

import pytest
import torch

from mue.data.synthetic.toy import Bars
from mue.models.learner import VqLearner
from mue.nn.blocks import ResidualBlock
from mue.runs.log import NonFiniteError
from mue.training.loop import fit
from mue.training.measure import measure
from mue.training.start import start_
from mue.training.state import Training
from mue.types import Case, Pair

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


# --- determinism ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["vq", "exact"])
def test_the_same_configuration_gives_the_same_weights_whatever_happened_before(tiny, method):
    def weights(seed: int):
        training = Training(tiny(method, steps=4, seed=seed), CPU)
        list(fit(training, Bars(seed=seed)))
        return training.export()

    first = weights(0)
    torch.manual_seed(123)
    second, other = weights(0), weights(1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if "weight" in name)


def test_building_networks_leaves_the_callers_random_numbers_alone(tiny):
    before = torch.get_rng_state()
    Training(tiny(), CPU)
    assert torch.equal(torch.get_rng_state(), before)


# --- averaged weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["vq", "exact"])
def test_the_exported_weights_are_the_average_of_those_of_each_step(tiny, method):
    """Against the definition, in double precision: the past counts min(ema, s / (s + 10))."""
    config = tiny(method, steps=30, ema=0.6)
    training, fresh = Training(config, CPU), Training(config, CPU)
    start_(fresh, Bars())
    average = {name: p.detach().double() for name, p in fresh.network.named_parameters()}
    for step in fit(training, Bars()):
        past = min(0.6, step.number / (step.number + 10))
        for name, p in training.network.named_parameters():
            average[name] = past * average[name] + (1 - past) * p.detach().double()
    last = dict(training.network.named_parameters())
    for name, value in training.export().items():
        torch.testing.assert_close(value.double(), average[name], rtol=1e-4, atol=1e-5)
        assert not torch.equal(value, last[name])


@pytest.mark.parametrize("method", ["vq", "exact"])
def test_without_averaging_the_last_weights_are_exported(tiny, method):
    training = Training(tiny(method, steps=3, ema=0.0), CPU)
    list(fit(training, Bars()))
    export = training.export()
    for name, p in training.network.named_parameters():
        assert torch.equal(export[name], p), name


# --- losses that are no numbers -------------------------------------------------------------------


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


# --- memory ---------------------------------------------------------------------------------------


def after(config, source=None) -> dict[str, torch.Tensor]:
    training = Training(config, CPU)
    list(fit(training, source or Bars()))
    return training.learner.state_dict()


def computed(config, **changes):
    return dataclasses.replace(config, compute=dataclasses.replace(config.compute, **changes))


@pytest.mark.parametrize("method", ["vq", "exact", "heads"])
def test_a_batch_in_parts_gives_the_same_weights(tiny, method):
    config = tiny(method, steps=6)
    whole, parts = after(config), after(computed(config, accumulate=4))
    assert all(torch.allclose(whole[n], parts[n], atol=2e-5) for n in whole)
    assert not all(torch.equal(whole[n], parts[n]) for n in whole)


def test_the_terms_of_a_batch_in_parts_are_those_of_the_batch(tiny):
    config = tiny("vq", steps=1)
    whole = measure(next(fit(Training(config, CPU), Bars())), 0.0)
    parts = measure(next(fit(Training(computed(config, accumulate=2), CPU), Bars())), 0.0)
    assert parts.total == pytest.approx(whole.total, rel=1e-5)
    assert parts.codes == whole.codes


def test_a_batch_that_cannot_be_cut_so_is_refused(tiny):
    config = computed(tiny("exact"), accumulate=3)
    with pytest.raises(ValueError, match=r"train.batch must be a multiple .* 3 parts .*, got 8"):
        next(fit(Training(config, CPU), Bars()))


@pytest.mark.parametrize("method", ["vq", "exact"])
def test_activations_that_are_computed_again_change_nothing(tiny, method, monkeypatch):
    config = tiny(method, steps=3)
    calls = []
    inner = ResidualBlock.forward
    monkeypatch.setattr(ResidualBlock, "forward", lambda s, x: (calls.append(1), inner(s, x))[1])
    kept = after(config)
    once = len(calls)
    again = after(computed(config, checkpointing=True))
    assert all(torch.equal(kept[n], again[n]) for n in kept)
    assert len(calls) - once > once  # the blocks ran again for their gradients


def test_a_log_record_has_the_peak_memory(tiny):
    assert measure(next(fit(Training(tiny(), CPU), Bars())), 0.0).memory > 50


def test_batches_that_are_streamed_give_the_same_weights(tiny):
    config = tiny("exact", steps=5)
    streamed = Bars()
    streamed.on_device = False
    here, there = after(config), after(config, streamed)
    assert all(torch.equal(here[n], there[n]) for n in here)


@pytest.mark.parametrize("method", ["probunet", "heads"])
def test_random_steps_leave_the_callers_random_numbers_alone(tiny, method):
    config = tiny(method, steps=2, dropout=0.5 if method == "heads" else 0.0)
    before = torch.get_rng_state()
    for _ in fit(Training(config, CPU), Bars()):
        assert torch.equal(torch.get_rng_state(), before)
