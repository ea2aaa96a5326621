"""Where to compute, by how many threads, and in how much memory."""

import contextlib
import errno
import math
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch

from mue.errors import MueError

_THREAD = 1 << 17
"""Elements of the finest feature map of a batch that are worth a thread."""
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),  # of the first version
)
_NO_MEMORY = (
    "DefaultCPUAllocator: ",  # of torch
    "could not create a primitive",  # of oneDNN, whose compiled code finds no memory
    "Cannot allocate memory",  # of the system, as torch repeats it
    "can't start new thread",
)
"""What errors say that are of no type of their own."""

Device = Literal["auto", "cpu", "cuda"]


def choose_device(name: Device | torch.device = "auto", index: int = 0) -> torch.device:
    """The accelerator where there is one, unless another is named."""
    if isinstance(name, torch.device):
        return name
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MueError("`device` is cuda, and torch finds no CUDA device here; take auto or cpu")
    if index >= (count := torch.cuda.device_count()):
        raise MueError(
            f"process {index} of this machine has no CUDA device of its own: torch finds {count}; "
            f"start as many here (torchrun --nproc-per-node {count}), or take the device cpu"
        )
    return torch.device("cuda", index)


@contextmanager
def threads_for(shape: Sequence[int], channels: int) -> Iterator[None]:
    """Compute with no more threads of the CPU than a batch of this shape, b c ..., is worth.

    `channels` are those of the finest feature map that a network makes of it. Threads wait for one
    another at every layer; where a layer takes a tenth of a millisecond, they do little else.
    """
    batch, _, *sides = shape
    elements = batch * math.prod(sides) * channels
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, elements // _THREAD)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def device_name(device: torch.device) -> str:
    """The accelerator or the processor, as it calls itself."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be allocated, here or on an accelerator."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


def physical_memory() -> int | None:
    """Bytes of memory of this machine, or of its container; None where it does not say."""
    if not hasattr(os, "sysconf"):  # Windows
        return None
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _CONTAINER_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # it is not there, or says "max"
            found.append(int(path.read_text()))
    return min(found)


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: allocated on the GPU, or resident in the process; 0 if unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows has none
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
