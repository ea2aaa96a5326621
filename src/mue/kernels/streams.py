"""Side streams of CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def on_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    """Run the block on another stream, after all that is queued on the current one."""
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        yield


class SideStreams:
    """Weight gradients on side streams of the backward pass.

    In the backward pass each gradient of an activation waits for the one before, and where kernels
    are small they leave most of a GPU idle. The gradients of weights, which nothing waits for
    before the optimizer step, fill it. A GPU starts first what is queued first, so queue what
    others wait for before them:

        ready = streams.event(device)
        ...  # the gradient of the activation
        with streams.run(grad_weight, *inputs, after=ready):
            ...  # the gradient of the weight

    Each stream that queues work here has side streams of its own.
    """

    def __init__(self, per_stream: int = 8) -> None:
        self._per_stream = per_stream
        self._of_result: dict[int, torch.cuda.Stream] = {}
        self._streams: dict[int, list[torch.cuda.Stream]] = {}
        self._inputs: list[Tensor] = []  # kept, so that their memory is not given to others

    def event(self, device: torch.device) -> torch.cuda.Event | None:
        """All that is queued on the current stream so far; None on a CPU."""
        if device.type != "cuda":
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        return event

    @contextmanager
    def run(
        self, result: Tensor, *inputs: Tensor, after: torch.cuda.Event | None
    ) -> Iterator[None]:
        """Run the block on a side stream once `after` has happened.

        Work on the same result keeps its order.
        """
        if after is None:
            yield
            return
        stream = self._of_result.get(result.data_ptr()) or self._next(result.device)
        self._of_result[result.data_ptr()] = stream
        stream.wait_event(after)
        with torch.cuda.stream(stream):
            yield
        self._inputs += inputs

    def _next(self, device: torch.device) -> torch.cuda.Stream:
        """The side streams of the current stream, round robin."""
        own = self._streams.setdefault(torch.cuda.current_stream(device).cuda_stream, [])
        if len(own) < self._per_stream:
            own.append(torch.cuda.Stream(device))
        else:
            own.append(own.pop(0))
        return own[-1]

    def join(self) -> None:
        """Let the current stream wait for all of them."""
        for stream in [stream for own in self._streams.values() for stream in own]:
            torch.cuda.current_stream(stream.device).wait_stream(stream)
        self._inputs.clear()
