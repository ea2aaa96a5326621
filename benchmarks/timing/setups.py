"""The two ways of computing that are compared: PyTorch's defaults, and ours."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import torch

from mue.config.schema import ComputeConfig, Config


def naive(config: Config) -> Config:
    """PyTorch's defaults: float32, contiguous, eager."""
    compute = ComputeConfig(
        device=config.compute.device,
        bfloat16="off",
        channels_last=False,
        kernels="off",
        compile="off",
        cuda_graph="off",
    )
    return replace(config, compute=compute)


def ours(config: Config) -> Config:
    """What `mue train` does by default."""
    return replace(config, compute=ComputeConfig(device=config.compute.device))


def eager(config: Config) -> Config:
    """Ours without compilation and CUDA graphs, so that a profile sees the shapes of operators."""
    fast = ours(config)
    return replace(fast, compute=replace(fast.compute, compile="off", cuda_graph="off"))


def precision(config: Config) -> torch.dtype:
    """What convolutions and matrix products are computed in."""
    wish, device = config.compute.bfloat16, config.compute.device
    half = wish == "on" or (wish == "auto" and device == "cuda")
    return torch.bfloat16 if half else torch.float32


def description(config: Config) -> str:
    """How a configuration computes, for the foot of a table."""
    values = dataclasses.asdict(config.compute)
    return ", ".join(f"{name} {value}" for name, value in values.items() if name != "device")
