import dataclasses

import pytest
import torch

from mue.data.synthetic.toy import Bars
from mue.nn.blocks import ResidualBlock
from mue.training.loop import fit
from mue.training.start import start_
from mue.training.state import Training

CPU = torch.device("cpu")


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


# --- memory ---------------------------------------------------------------------------------------


def after(config, source=None) -> dict[str, torch.Tensor]:
    training = Training(config, CPU)
    list(fit(training, source or Bars()))
    return training.learner.state_dict()


def computed(config, **changes):
    return dataclasses.replace(config, compute=dataclasses.replace(config.compute, **changes))


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


@pytest.mark.parametrize("method", ["probunet", "heads"])
def test_random_steps_leave_the_callers_random_numbers_alone(tiny, method):
    config = tiny(method, steps=2, dropout=0.5 if method == "heads" else 0.0)
    before = torch.get_rng_state()
    for _ in fit(Training(config, CPU), Bars()):
        assert torch.equal(torch.get_rng_state(), before)
