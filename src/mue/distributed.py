"""The one place that knows there may be several processes."""

import os

import torch
import torch.distributed as dist
from torch import Tensor


def start_(device: torch.device) -> None:
    """Join the processes that `torchrun` started. Alone, there is nothing to do."""
    if "RANK" in os.environ and not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


def stop_() -> None:
    """Leave the other processes."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """Number of this process; 0 for the one that writes files."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def global_rank() -> int:
    """Number of this process before and after it joins the others, as `torchrun` says."""
    return int(os.environ.get("RANK", "0"))


def local_rank() -> int:
    """Number of this process on its machine: the accelerator it takes."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def all_sum_(*tensors: Tensor) -> None:
    """Sum each tensor over all processes, in place. Alone, there is nothing to do."""
    if world() > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)


def all_max_(tensor: Tensor) -> None:
    """Replace a tensor by its greatest over all processes, in place."""
    if world() > 1:
        dist.all_reduce(tensor, dist.ReduceOp.MAX)


def broadcast_(tensor: Tensor) -> None:
    """Overwrite a tensor by that of process 0."""
    if world() > 1:
        dist.broadcast(tensor, 0)


def all_mean(value: Tensor) -> Tensor:
    """The mean of a tensor over all processes."""
    mean = value.detach().clone()
    all_sum_(mean)
    return mean / world()


def meet() -> None:
    """Wait until every process is here."""
    if world() > 1:
        dist.barrier()
