"""One pass over all weights does what PyTorch does parameter by parameter."""

import copy

import pytest
import torch
from torch import nn

from mue.config.schema import TrainConfig
from mue.training.optimizer import FlatAdamW


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 5, 3), nn.Flatten(), nn.LazyLinear(3))


@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_an_update_is_that_of_adamw(clip):
    x = torch.randn(4, 2, 6, 6)
    ours = net()
    ours(x)  # now the last layer knows its width
    theirs = copy.deepcopy(ours)
    config = TrainConfig(steps=3, batch=4, lr=0.01, clip=clip, weight_decay=0.1, ema=0.9)
    weights = list(ours.parameters())
    optimizer = FlatAdamW(weights, config)
    adam = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.1)
    means = [p.detach().clone() for p in theirs.parameters()]
    for _ in range(3):
        ours(x).square().sum().backward()
        with torch.no_grad():
            optimizer.collect_()
            optimizer.update_(torch.tensor(0.9))
        adam.zero_grad()
        theirs(x).square().sum().backward()
        if clip:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        adam.step()
        for mean, p in zip(means, theirs.parameters(), strict=True):
            mean.lerp_(p.detach(), 0.1)
    torch.testing.assert_close(weights, list(theirs.parameters()))
    torch.testing.assert_close(optimizer.ema, means)
    assert all(p.grad is None for p in weights)


def test_without_an_average_the_weights_are_kept_once():
    weight = nn.Parameter(torch.ones(2))
    optimizer = FlatAdamW([weight], TrainConfig(steps=1, batch=1, ema=0.0))
    assert optimizer.ema[0].data_ptr() == weight.data_ptr()


def test_a_weight_without_a_gradient_moves_by_its_decay_alone():
    used, idle = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    config = TrainConfig(steps=1, batch=1, lr=0.1, weight_decay=0.5)
    optimizer = FlatAdamW([used, idle], config)
    used.sum().backward()
    with torch.no_grad():
        optimizer.collect_()
        optimizer.update_(torch.tensor(0.0))
    assert idle.tolist() == pytest.approx([0.95, 0.95])
    assert used.tolist() == pytest.approx([0.85, 0.85])
