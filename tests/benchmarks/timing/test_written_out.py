import dataclasses

import pytest
import torch

from mue import objective as ours
from mue.config.presets import preset
from mue.config.schema import ObjectiveConfig
from mue.data.build import build_source
from mue.objective import Weights
from mue.training.loop import fit
from mue.training.measure import measure
from mue.training.state import Training
from mue.types import ExactTrace
from timing import written_out as plain
from timing.setups import naive

CPU = torch.device("cpu")
CONFIG, WEIGHTS = ObjectiveConfig(reconstruction=0.3, energy=1.5), Weights(0.7, 2.0, balance=False)


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        (CONFIG, WEIGHTS),
        (CONFIG, dataclasses.replace(WEIGHTS, balance=True)),
        (dataclasses.replace(CONFIG, energy=0.0), WEIGHTS),
    ],
    ids=["energy", "balanced", "without energy"],
)
def test_written_out_it_is_the_same_objective_with_the_same_gradients(config, weights):
    torch.manual_seed(0)
    y = torch.randint(2, (3, 4, 1, 6, 5)).float()
    log_prior, logits = torch.randn(3, 7).log_softmax(dim=1), 2 * torch.randn(3, 7, 1, 6, 5)
    found = []
    for of in (ours.objective, plain.objective):
        leaves = [t.clone().requires_grad_() for t in (log_prior, logits)]
        terms = of(ExactTrace(*leaves), y, config, weights)
        found.append([*terms.by_name().values(), *torch.autograd.grad(terms.total, leaves)])
    for mine, written in zip(*found, strict=True):
        torch.testing.assert_close(mine, written)


def test_a_training_written_out_goes_the_same_way():
    config = naive(preset("toy"))
    source = build_source(config.data, "train", seed=0, device=CPU)
    ends = []
    for written in (False, True):
        training = Training(config, CPU)
        if written:
            plain.write_out_(training)
        steps = fit(training, source)
        ends.append([measure(next(steps), 0.0).total for _ in range(3)])
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)
    assert len(set(ends[0])) == 3  # it did move


def test_only_exact_has_something_to_write_out():
    training = Training(naive(preset("toy-vq")), CPU)
    before = training.objective
    plain.write_out_(training)
    assert training.objective is before


def test_an_objective_of_another_method_is_refused():
    trace = ExactTrace(torch.zeros(1, 2), torch.zeros(1, 2, 1, 2, 2))
    normal = ObjectiveConfig(likelihood="normal")
    with pytest.raises(TypeError, match="method exact"):
        plain.objective(trace, torch.zeros(1, 1, 1, 2, 2), normal, WEIGHTS)
