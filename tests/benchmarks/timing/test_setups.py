import dataclasses

import torch

from mue.config.presets import preset
from mue.config.schema import ComputeConfig
from timing.setups import description, eager, naive, ours, precision


def test_ways_of_computing_differ_in_nothing_else():
    for device in ("cpu", "cuda"):
        config = dataclasses.replace(preset("guess"), compute=ComputeConfig(device=device))
        for way in (naive, ours, eager):
            made = way(config)
            assert dataclasses.replace(made, compute=config.compute) == config
            assert made.compute.device == device


def test_naive_is_contiguous_float32():
    config = naive(preset("guess"))
    assert not config.compute.channels_last
    assert precision(config) is torch.float32
    assert "channels_last False" in description(config)


def test_ours_takes_half_the_bytes_on_an_accelerator():
    config = dataclasses.replace(preset("guess"), compute=ComputeConfig(device="cuda"))
    assert precision(ours(config)) is torch.bfloat16
    assert ours(config).compute.channels_last
