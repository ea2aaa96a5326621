"""Prefetching: the next batch is loaded while the device computes."""

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor

from mue.data.source import Source
from mue.types import Pair

_reading = threading.Lock()


@contextmanager
def no_prefetching() -> Generator[None]:
    """Batches are not loaded in the background in this block; one that is being loaded is awaited.

    A data set may so be read by two threads in turn, never by both at once: it need not be safe for
    threads.
    """
    with _reading:
        yield


class Prefetcher:
    """The batches of a data set; a background thread loads that of the next step.

    `indices` gives those of a step, one tensor for each part of its batch. On a CUDA device the
    copies have a stream of their own.
    """

    def __init__(
        self, source: Source, indices: Callable[[int], Sequence[Tensor]], device: torch.device
    ) -> None:
        self._source, self._indices = source, indices
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._pending: dict[int, Future[list[Pair]]] = {}  # by step

    def __call__(self, step: int, *, prefetch_next: bool) -> list[Pair]:
        """The pairs of a step; with `prefetch_next`, loading those of the next one begins."""
        pending = self._pending.pop(step, None) or self._executor.submit(self._load, step)
        pairs = pending.result()
        self._pending = (
            {step + 1: self._executor.submit(self._load, step + 1)} if prefetch_next else {}
        )
        if self._stream is not None:  # the allocator must not reuse them before this stream is done
            for pair in pairs:
                pair.x.record_stream(torch.cuda.current_stream())
                pair.y.record_stream(torch.cuda.current_stream())
        return pairs

    def _load(self, step: int) -> list[Pair]:
        if self._stream is None:
            return self._read(step)
        with torch.cuda.stream(self._stream):
            pairs = self._read(step)
        self._stream.synchronize()  # this thread waits, not the one that trains
        return pairs

    def _read(self, step: int) -> list[Pair]:
        with _reading:
            return [self._source.pair(index) for index in self._indices(step)]
