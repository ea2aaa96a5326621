import contextlib
import copy
import dataclasses

import pytest
import torch
from torch import nn

from mue.data.synthetic.toy import Bars
from mue.nn.across import ALONE
from mue.objective import objective
from mue.training.loop import fit
from mue.training.measure import measure
from mue.training.schedule import weights_at
from mue.training.start import start_
from mue.training.state import Training
from mue.training.step import TrainStep
from mue.types import VqTrace

CPU = torch.device("cpu")


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


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("method", ["vq", "exact", "heads"])
def test_a_step_is_what_pytorch_makes_of_it_written_out(tiny, method, channels_last):
    """Batch, forward, terms, backward, the code book, the weights: of the fourth step."""
    config = computed(
        tiny(method, clip=0.5, weight_decay=0.1, warmup=9, milestones=(), factors=()),
        channels_last=channels_last,
    )
    training = Training(config, CPU)
    start_(training, Bars())
    plain = copy.deepcopy(training.learner)
    step = TrainStep(training, Bars())
    taken = step(step.prepare_(3))

    pair = Bars().pair(torch.arange(24, 32))
    weights = weights_at(config, 3)
    trace = plain(pair.x, pair.y)
    terms = objective(trace, pair.y, config.objective, weights)
    learned = [p for p in plain.parameters() if p.requires_grad]
    terms.total.backward()
    nn.utils.clip_grad_norm_(learned, 0.5)
    torch.optim.AdamW(learned, lr=0.01 * 4 / 10, weight_decay=0.1).step()
    plain.settle_(trace, ALONE)

    torch.testing.assert_close(taken.terms.by_name(), terms.detached().by_name())
    torch.testing.assert_close(training.learner.state_dict(), plain.state_dict())
    assert not taken.non_finite


def test_codes_in_use_are_those_of_all_parts_of_the_batch(tiny):
    """And the code book follows all of them: its counts are of the whole batch."""
    config = computed(tiny("vq"), accumulate=4)
    training = Training(config, CPU)
    start_(training, Bars())
    with torch.no_grad():
        trace = training.learner(*_first_batch())
    step = TrainStep(training, Bars())
    taken = step(step.prepare_(0))
    hits = trace.index.flatten().bincount(minlength=6)
    assert (hits > 0).sum() > 1
    assert torch.equal(taken.used, (hits > 0).float())
    assert isinstance(taken.trace, VqTrace)
    assert torch.equal(taken.trace.index, trace.index)
    count = training.learner.get_buffer("posterior.usage.count")
    torch.testing.assert_close(count, 0.9 + 0.1 * hits)  # each began at 1


def _first_batch() -> tuple[torch.Tensor, torch.Tensor]:
    pair = Bars().pair(torch.arange(8))
    return pair.x, pair.y


def test_gradients_are_averaged_over_processes_in_the_last_part_alone(tiny):
    """Where several processes compute, the others would be sent for nothing."""
    training, synced, calls = Training(computed(tiny(), accumulate=4), CPU), [True], list[bool]()

    @contextlib.contextmanager
    def no_sync(_: nn.Module):
        synced[0] = False
        yield
        synced[0] = True

    training.across = dataclasses.replace(ALONE, no_sync=no_sync)
    training.module.register_forward_hook(lambda *_: calls.append(synced[0]))
    step = TrainStep(training, Bars())
    step(step.prepare_(0))
    assert calls == [False, False, False, True]


def test_a_loss_that_is_not_finite_is_noted_without_an_error(tiny):
    training = Training(tiny("exact"), CPU)
    with torch.no_grad():
        training.network.get_parameter("prior.bias").fill_(torch.nan)
    step = TrainStep(training, Bars())
    assert step(step.prepare_(0)).non_finite


def test_the_objective_reduces_over_what_the_training_does(tiny):
    seen: list[object] = []

    def noting(trace, y, config, weights, across):
        seen.append(across)
        return objective(trace, y, config, weights, across)

    training = Training(tiny(), CPU, objective=noting)
    training.across = dataclasses.replace(ALONE)
    step = TrainStep(training, Bars())
    step(step.prepare_(0))
    assert len(seen) == 1
    assert seen[0] is training.across
