"""Sums over all processes; alone, there is nothing to do."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """Number of this process; 0 for the one that writes files."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def all_sum_(*tensors: Tensor) -> None:
    """Sum each tensor over all processes, in place. Alone, there is nothing to do."""
    if world() > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)


def all_max_(tensor: Tensor) -> None:
    """Replace a tensor by its greatest over all processes, in place."""
    if world() > 1:
        dist.all_reduce(tensor, dist.ReduceOp.MAX)


def all_mean(value: Tensor) -> Tensor:
    """The mean of a tensor over all processes."""
    mean = value.detach().clone()
    all_sum_(mean)
    return mean / world()


def farthest(e: Tensor, distance: Tensor) -> Tensor:
    """Of the rows of `e` in all processes, the one whose distance is the greatest."""
    best = distance.argmax()
    if world() == 1:
        return e[best]
    most = torch.zeros(world(), dtype=distance.dtype, device=distance.device)
    most[rank()] = distance[best]
    all_sum_(most)
    row = torch.where(most.argmax() == rank(), e[best], torch.zeros_like(e[best]))
    all_sum_(row)
    return row
