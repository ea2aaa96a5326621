"""The one place that knows there may be several processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mue.collectives import all_max_, rank, world
from mue.errors import MueError

START_SECONDS = ("MUE_START_SECONDS", 600)
"""The variable that says how long processes wait for one another at first, and its default."""
LOST_SECONDS = ("MUE_LOST_SECONDS", 45)
"""The same for later, when each has taken a step."""


class ElsewhereError(MueError):
    """What is wrong in another process, or between two. Every process ends; process 0 says it."""


class LostError(RuntimeError):
    """Another process is gone, or never came: this one cannot go on."""


def global_rank() -> int:
    """Number of this process before and after it joins the others, as `torchrun` says."""
    return told("RANK", 0)


def local_rank() -> int:
    """Number of this process on its machine: the accelerator it takes."""
    return told("LOCAL_RANK", 0)


def told(name: str, default: int | None = None) -> int:
    """A whole number that the environment tells."""
    value = os.environ.get(name, default)
    try:
        return int(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        raise MueError(
            f"{name} must be a whole number in the environment, got {value!r}; "
            "`torchrun` sets it, and where RANK is not set, one process works alone"
        ) from None


def hurry_() -> None:
    """Wait less for one another: the first step, which may compile for minutes, is done."""
    if world() > 1:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=told(*LOST_SECONDS)))


@contextlib.contextmanager
def company() -> Generator[None]:
    """Say in a sentence that another process is gone, where a collective finds it so."""
    try:
        yield
    except RuntimeError as error:
        if world() == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        who = f"process {rank()} of {world()}"
        dist.distributed_c10d._abort_process_group()
        raise LostError(
            f"{who} stops, because another is gone or does not answer ({reason(error)})"
        ) from None


def reason(error: RuntimeError) -> str:
    """What a collective complains of, without the file and line of its source."""
    line = (str(error).strip().splitlines() or [""])[0].rpartition("] ")[2]
    return line.partition(". ")[0]


def stop_() -> None:
    """Leave the other processes."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def any_process(mine: bool) -> bool:
    """Whether any process says yes. It goes around between CPUs: no accelerator is waited for."""
    if world() == 1:
        return mine
    said = torch.tensor(int(mine))
    all_max_(said)
    return bool(said)


def wait() -> None:
    """Wait until every process is here."""
    any_process(False)


def replicate(module: nn.Module) -> nn.Module:
    """A module whose gradients are averaged over all processes; alone, the module itself."""
    return DistributedDataParallel(module) if world() > 1 else module


def no_sync(module: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Leave gradients unaveraged within the block: more are to be added before it matters."""
    if isinstance(module, DistributedDataParallel):
        return module.no_sync()
    return contextlib.nullcontext()
