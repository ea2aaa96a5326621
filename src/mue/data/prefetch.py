"""Batches made ahead of time, while the device computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from mue.data.source import Source
from mue.types import Pair


class Ahead:
    """The pairs of a step, of which the next step's are being made by a thread of their own."""

    def __init__(
        self, source: Source, parts: Callable[[int], Sequence[Tensor]], device: torch.device
    ) -> None:
        self._source = source
        self._parts = parts
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._waiting: tuple[int, Future[list[Pair]]] | None = None

    def __call__(self, step: int, *, more: bool) -> list[Pair]:
        """The pairs of a step; with `more`, those of the next one are begun."""
        waiting = self._waiting
        if waiting is None or waiting[0] != step:
            waiting = (step, self._thread.submit(self._make, step))
        pairs = waiting[1].result()
        self._waiting = (step + 1, self._thread.submit(self._make, step + 1)) if more else None
        if self._stream is not None:  # its memory is not to be used anew while this stream reads
            for pair in pairs:
                pair.x.record_stream(torch.cuda.current_stream())
                pair.y.record_stream(torch.cuda.current_stream())
        return pairs

    def _make(self, step: int) -> list[Pair]:
        if self._stream is None:
            return [self._source.pair(index) for index in self._parts(step)]
        with torch.cuda.stream(self._stream):
            pairs = [self._source.pair(index) for index in self._parts(step)]
        self._stream.synchronize()  # this thread waits, not the one that trains
        return pairs
