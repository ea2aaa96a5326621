"""How fast a model answers, on this machine."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from mue.inference.predictor import Predictor


def single_pass(predictor: Predictor) -> bool:
    """Whether all answers to an input take one forward pass."""
    return predictor.network.forward_passes(2) == 1


def seconds_for(predictor: Predictor, x: Tensor, answers: int) -> float:
    """How long the answers take: the fastest of three calls or more after a warm-up.

    What takes milliseconds is repeated for a fifth of a second, or another job would count.
    """
    took: list[float] = []
    while len(took) < 4 or sum(took) < 0.2:
        began = time.perf_counter()
        predictor.propose(x, answers, normalized=True)
        if predictor.device.type == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return min(took[1:])
