import torch

from mue.config.presets import preset
from mue.data.source import Source
from timing.random_slices import random_slices


def test_random_slices_are_a_source():
    config = preset("lidc-exact").data
    source = random_slices(config, 20, torch.device("cpu"), slices=3, seed=1)
    assert isinstance(source, Source)
    pair = source.pair(torch.arange(5))
    assert pair.x.shape == (5, 1, 20, 20)
    assert pair.y.shape == (5, 4, 1, 20, 20)
    assert 0 < pair.y.mean() < 1
    assert torch.equal(source.pair(torch.tensor([3])).x[0], pair.x[3])
