"""One pass over all weights does what PyTorch does parameter by parameter."""

import copy

import pytest
import torch
from torch import nn

from mue.config.schema import TrainConfig
from mue.training.optimizer import Update


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 5, 3), nn.Flatten(), nn.LazyLinear(3))


@pytest.mark.parametrize("clip", [0.0, 0.1])
@pytest.mark.parametrize("fused", [True, False])
def test_an_update_is_that_of_adamw(clip, fused):
    x = torch.randn(4, 2, 6, 6)
    ours = net()
    ours(x)  # now the last layer knows its width
    theirs = copy.deepcopy(ours)
    config = TrainConfig(steps=3, batch=4, lr=0.01, clip=clip, weight_decay=0.1)
    weights = list(ours.parameters())
    update = Update(weights, config, fused=fused, rounds=True)
    adam = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.1)
    means = [p.detach().clone() for p in theirs.parameters()]
    for _ in range(3):
        ours(x).square().sum().backward()
        with torch.no_grad():
            update.collect_()
            update.sweep(torch.tensor(0.9))
        adam.zero_grad()
        theirs(x).square().sum().backward()
        if clip:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        adam.step()
        for mean, p in zip(means, theirs.parameters(), strict=True):
            mean.lerp_(p.detach(), 0.1)
    torch.testing.assert_close(weights, list(theirs.parameters()))
    torch.testing.assert_close(update.means, means)
    assert all(torch.equal(r, p.bfloat16()) for r, p in zip(update.rounded, weights, strict=True))
    assert all(p.grad is None for p in weights)


def test_a_weight_without_a_gradient_moves_by_its_decay_alone():
    used, idle = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    config = TrainConfig(steps=1, batch=1, lr=0.1, weight_decay=0.5)
    update = Update([used, idle], config, fused=False, rounds=False)
    used.sum().backward()
    with torch.no_grad():
        update.collect_()
        update.sweep(torch.tensor(0.0))
    assert idle.tolist() == pytest.approx([0.95, 0.95])
    assert used.tolist() == pytest.approx([0.85, 0.85])


def test_gradients_that_gather_in_their_places_are_used_up():
    weight = nn.Parameter(torch.ones(2))
    config = TrainConfig(steps=1, batch=1, lr=0.1)
    update = Update([weight], config, fused=False, gathers=True)
    weight.grad = update.places[0]
    for _ in range(2):
        (3 * weight).sum().backward()
    assert update.places[0].tolist() == [6, 6]
    with torch.no_grad():
        update.sweep(torch.tensor(0.0))
    assert weight.grad.tolist() == [0, 0]
    assert weight.tolist() == pytest.approx([0.9, 0.9])
