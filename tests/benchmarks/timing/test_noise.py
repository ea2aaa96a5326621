import torch

from mue.config.presets import preset
from mue.data.source import Source
from timing.noise import noise


def test_noise_is_a_source_of_slices():
    config = preset("lidc-exact").data
    source = noise(config, 20, torch.device("cpu"), slices=3, seed=1)
    assert isinstance(source, Source)
    pair = source.pair(torch.arange(5))
    assert pair.x.shape == (5, 1, 20, 20)
    assert pair.y.shape == (5, 4, 1, 20, 20)
    assert 0 < pair.y.mean() < 1
    assert torch.equal(source.pair(torch.tensor([3])).x[0], pair.x[3])
