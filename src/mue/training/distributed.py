"""Several processes: their environment, errors and timeouts.

`torchrun`, or whoever sets RANK and WORLD_SIZE, starts the processes; `rendezvous.py` connects
them; `mue.runtime.collectives` reduces over them.
"""

import contextlib
from collections.abc import Generator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mue.errors import MueError
from mue.nn.across import Across
from mue.runtime.collectives import all_max_, all_mean, all_sum_, env_int, rank, world

START_SECONDS = ("MUE_START_SECONDS", 600)
"""Environment variable and default of the timeout until each process has taken its first step."""
LOST_SECONDS = ("MUE_LOST_SECONDS", 45)
"""The same for every later collective."""


class RemoteError(MueError):
    """Another process failed, or two of them differ. Every process ends; process 0 prints it."""


class WorkerLostError(RuntimeError):
    """Another process has died or never started: this one cannot continue."""


def shorten_timeout_() -> None:
    """Lower the timeout of collectives after the first step, whose compilation may take minutes."""
    _set_timeout_(*LOST_SECONDS)


@contextlib.contextmanager
def long_timeout() -> Generator[None]:
    """The timeout of the first step, for a block in which one process computes for the others."""
    _set_timeout_(*START_SECONDS)
    try:
        yield
    finally:
        shorten_timeout_()


def _set_timeout_(name: str, default: int) -> None:
    if world() > 1 and dist.group.WORLD is not None:
        dist.group.WORLD.set_timeout(timedelta(seconds=env_int(name, default)))


@contextlib.contextmanager
def explain_lost_worker() -> Generator[None]:
    """Turn a failed collective into one sentence: another process is gone."""
    try:
        yield
    except RuntimeError as error:
        if world() == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        who = f"process {rank()} of {world()}"
        dist.distributed_c10d._abort_process_group()  # destroying it would wait for the lost one
        raise WorkerLostError(
            f"{who} stops, because another is gone or does not answer ({reason(error)})"
        ) from None


def reason(error: RuntimeError) -> str:
    """The message of a failed collective, without the file and line of its source."""
    line = (str(error).strip().splitlines() or [""])[0].rpartition("] ")[2]
    return line.partition(". ")[0]


def shutdown_() -> None:
    """Destroy the process group, if there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process. Reduced on the CPU: no GPU is synchronized."""
    all_max_(flags := torch.tensor(int(flag)))
    return bool(flags)


def replicate(module: nn.Module) -> nn.Module:
    """A module whose gradients are averaged over all processes; alone, the module itself."""
    return DistributedDataParallel(module) if world() > 1 else module


def no_sync(module: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Leave gradients unaveraged within the block: more are to be added before it matters."""
    if isinstance(module, DistributedDataParallel):
        return module.no_sync()
    return contextlib.nullcontext()


PROCESSES = Across(all_sum_, all_max_, all_mean, replicate, no_sync)
"""What a training step needs where each process has a share of the batch."""
