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
    where kernels are small they leave most of a GPU idle. The gradients of weights can fill it. A
    GPU begins first what it is given first, so what others wait for is to be launched before:

        now = errands.moment(device)
        ...  # what others wait for
        with errands.errand(result, *needed, since=now):
            ...  # what nobody waits for

    Each stream that has errands has streams of its own for them: none waits for those of another.
    """

    def __init__(self, streams: int = 8) -> None:
        self._count = streams
        self._of: dict[int, torch.cuda.Stream] = {}
        self._streams: dict[int, list[torch.cuda.Stream]] = {}
        self._needed: list[Tensor] = []  # so that no memory is given to somebody else too early

    def moment(self, device: torch.device) -> torch.cuda.Event | None:
        """What has been begun so far on the current stream, to be waited for."""
        if device.type != "cuda":
            return None
        now = torch.cuda.Event()
        now.record(torch.cuda.current_stream(device))
        return now

    @contextmanager
    def errand(
        self, result: Tensor, *needed: Tensor, since: torch.cuda.Event | None
    ) -> Iterator[None]:
        """Let what follows run beside the rest, as soon as all it needs is there.

        What is done for the same result is done in the order in which it is asked for.
        """
        if since is None:
            yield
            return
        stream = self._of.get(result.data_ptr()) or self._next(result.device)
        self._of[result.data_ptr()] = stream
        stream.wait_event(since)
        with torch.cuda.stream(stream):
            yield
        self._needed += needed

    def _next(self, device: torch.device) -> torch.cuda.Stream:
        """The streams of the current one, by turns."""
        mine = self._streams.setdefault(torch.cuda.current_stream(device).cuda_stream, [])
        if len(mine) < self._count:
            mine.append(torch.cuda.Stream(device))
        else:
            mine.append(mine.pop(0))
        return mine[-1]

    def wait(self) -> None:
        """Wait for all of it, on the device."""
        for stream in [stream for mine in self._streams.values() for stream in mine]:
            torch.cuda.current_stream(stream.device).wait_stream(stream)
        self._needed.clear()
