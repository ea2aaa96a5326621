"""The processes of a command, and reductions over all of them: the identity for one."""

import os

import torch
import torch.distributed as dist
from torch import Tensor

from mue.errors import MueError


def env_int(name: str, default: int | None = None) -> int:
    """A whole number from the environment; RANK is known before there is a process group."""
    value = os.environ.get(name, default)
    try:
        return int(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        raise MueError(
            f"{name} must be a whole number in the environment, got {value!r}; "
            "`torchrun` sets it, and without RANK a single process runs"
        ) from None


def rank() -> int:
    """Rank of this process; 0 is the one that writes files."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def all_sum_(*tensors: Tensor) -> None:
    """Sum each tensor over all processes, in place."""
    if world() > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)


def all_max_(tensor: Tensor) -> None:
    """Elementwise maximum over all processes, in place."""
    if world() > 1:
        dist.all_reduce(tensor, dist.ReduceOp.MAX)


def all_mean(value: Tensor) -> Tensor:
    """The mean of a tensor over all processes."""
    mean = value.detach().clone()
    all_sum_(mean)
    return mean / world()


def farthest(e: Tensor, distance: Tensor) -> Tensor:
    """The row of `e` with the largest distance, over the rows of all processes."""
    best = distance.argmax()
    if world() == 1:
        return e[best]
    largest = torch.zeros(world(), dtype=distance.dtype, device=distance.device)
    largest[rank()] = distance[best]
    all_sum_(largest)
    row = torch.where(largest.argmax() == rank(), e[best], torch.zeros_like(e[best]))
    all_sum_(row)
    return row
