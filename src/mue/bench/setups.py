"""The two ways of computing that are compared: as it comes, and as fast as we can."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import torch

from mue.config import ComputeConfig, Config


def naive(config: Config) -> Config:
    """Float32, contiguous, one operator after the other: what torch does if told nothing."""
    plain = ComputeConfig(
        device=config.compute.device, bfloat16=False, channels_last=False, compile=False
    )
    return replace(config, compute=plain)


def ours(config: Config) -> Config:
    """What `mue train` should be told on this device."""
    fast = torch.device(config.compute.device).type == "cuda"
    compute = ComputeConfig(
        device=config.compute.device, bfloat16=fast, channels_last=True, compile=fast
    )
    return replace(config, compute=compute)


def unrolled(config: Config) -> Config:
    """Ours, launched operator by operator, so that a profile sees the shapes of each."""
    fast = ours(config)
    return replace(fast, compute=replace(fast.compute, compile=False))


def precision(config: Config) -> torch.dtype:
    """What convolutions and products are computed in."""
    return torch.bfloat16 if config.compute.bfloat16 else torch.float32


def words(config: Config) -> str:
    """How a configuration computes, for the foot of a table."""
    values = dataclasses.asdict(config.compute)
    return ", ".join(f"{name} {value}" for name, value in values.items() if name != "device")
