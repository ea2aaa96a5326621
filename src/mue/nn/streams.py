"""Work beside other work on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def beside(stream: torch.cuda.Stream) -> Iterator[None]:
    """Let what follows run on a stream of its own, from what has been begun so far on."""
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        yield


class Errands:
    """Work whose results nobody needs before the end, beside the work that gives rise to it.

    On the way back through a network each gradient of an activation waits for the one before, and
    where kernels are small they leave most of a GPU idle. The gradients of weights can fill it.
    """

    def __init__(self, streams: int = 16) -> None:
        self._count = streams
        self._streams: list[torch.cuda.Stream] = []
        self._of: dict[int, torch.cuda.Stream] = {}
        self._needed: list[Tensor] = []  # so that no memory is given to somebody else too early

    @contextmanager
    def errand(self, result: Tensor, *needed: Tensor) -> Iterator[None]:
        """Let what follows run beside the rest, as soon as all it needs is there.

        What is done for the same result is done in the order in which it is asked for.
        """
        if result.device.type != "cuda":
            yield
            return
        if not self._streams:
            self._streams = [torch.cuda.Stream(result.device) for _ in range(self._count)]
        turn = self._streams[len(self._of) % self._count]
        with beside(self._of.setdefault(result.data_ptr(), turn)):
            yield
        self._needed += needed

    def wait(self) -> None:
        """Wait for all of it, on the device."""
        for stream in self._streams:
            torch.cuda.current_stream(stream.device).wait_stream(stream)
        self._needed.clear()
