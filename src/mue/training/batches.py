"""The batch of each step, and this process's share of it."""

from contextlib import AbstractContextManager

import torch
from jaxtyping import Int
from torch import Tensor

from mue.config.schema import Config
from mue.data.prefetch import Prefetcher
from mue.data.source import Source
from mue.errors import MueError
from mue.runtime import collectives
from mue.runtime.devices import threads_for
from mue.types import Pair


def batch_share(config: Config) -> int:
    """How many inputs of a step each process sees, or why there is no such number."""
    size, world, parts = config.train.batch, collectives.world(), config.compute.accumulate
    if size % (world * parts):
        also = f" and {parts} parts of compute.accumulate together" if parts > 1 else ""
        raise MueError(f"train.batch must be a multiple of the {world} processes{also}, got {size}")
    return size // world


def batch_threads(config: Config, source: Source) -> AbstractContextManager[None]:
    """Compute with as many threads of the CPU as the batch of a process is worth."""
    shape = source.pair(torch.tensor([0])).x.shape
    return threads_for((batch_share(config), *shape[1:]), config.model.finest)


def batches_of(
    config: Config, device: torch.device, source: Source, first: Tensor
) -> "GeneratedBatches | PrefetchedBatches":
    """The batches of a training; `first` holds the index of the first item of the next one."""
    if source.on_device:
        return GeneratedBatches(config, device, source, first)
    return PrefetchedBatches(config, device, source)


def first_item(config: Config, step: int) -> int:
    """Index of the first item that this process sees in a step."""
    return step * config.train.batch + collectives.rank() * batch_share(config)


def batch_index(config: Config, step: int, device: torch.device) -> Int[Tensor, " b"]:
    """The items that this process sees in a step: its share of the batch."""
    first = first_item(config, step)
    return torch.arange(first, first + batch_share(config), device=device)


class GeneratedBatches:
    """Batches generated or gathered on the device, from the index of their first item.

    Like `PrefetchedBatches`: `load_` is called on the host before the step after `step` steps, and
    then the parts of its batch, as many as gradients are accumulated over, are on the device.
    """

    def __init__(self, config: Config, device: torch.device, source: Source, first: Tensor) -> None:
        self._source, self._first = source, first
        self._size = batch_share(config) // config.compute.accumulate
        self._items = torch.arange(self._size, device=device)

    def load_(self, step: int) -> None:
        """Nothing: the index of the first item is on the device already."""

    def __call__(self, part: int) -> Pair:
        """One part of the batch of this step."""
        return self._source.pair(self._first + part * self._size + self._items)


class PrefetchedBatches:
    """Batches of data that are not kept on the device: a thread reads the next from files.

    They are copied into the same memory each time.
    """

    def __init__(self, config: Config, device: torch.device, source: Source) -> None:
        parts = config.compute.accumulate
        self._prefetch = Prefetcher(
            source, lambda step: batch_index(config, step, torch.device("cpu")).chunk(parts), device
        )
        self._last = config.train.steps - 1
        self._pairs: list[Pair] = []

    def load_(self, step: int) -> None:
        """Fetch the batch; a thread prefetches the next."""
        pairs = self._prefetch(step, prefetch_next=step < self._last)
        if not self._pairs:
            self._pairs = pairs
            return
        for kept, pair in zip(self._pairs, pairs, strict=True):
            kept.x.copy_(pair.x)
            kept.y.copy_(pair.y)

    def __call__(self, part: int) -> Pair:
        """One part of it."""
        return self._pairs[part]
