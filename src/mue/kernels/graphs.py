"""CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

from mue.kernels.streams import on_stream

Result = TypeVar("Result")


class CudaGraph(Generic[Result]):
    """Work on a GPU that is captured as a CUDA graph after some calls, and replayed from then on.

    Where kernels are short, a GPU waits for the host to launch them one by one; a replay launches
    all of them at once. The first `warmup` calls run eagerly, so that libraries have allocated what
    they need before the capture. Inputs and results stay at the same addresses: a replay reads and
    overwrites them.

    Where the capture fails, `on_failure` gets the error; unless it raises, all calls run eagerly.
    """

    def __init__(
        self,
        work: Callable[[], Result],
        device: torch.device,
        *,
        warmup: int,
        on_failure: Callable[[RuntimeError], None],
    ) -> None:
        self._work = work
        self._device = device
        self._warmup = warmup
        self._on_failure = on_failure
        self._stream = torch.cuda.Stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured: list[Result] = []
        self._failed = False

    def __call__(self) -> Result:
        """Do the work once more."""
        if self._failed:
            return self._work()
        if self._warmup > 0:
            self._warmup -= 1
            with on_stream(self._stream):
                result = self._work()
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
            return result
        if self._graph is None:
            try:
                self._capture()
            except RuntimeError as error:  # no memory is left, or an operator cannot be captured
                self._on_failure(error)
                self._failed = True
                return self._work()
        assert self._graph is not None
        self._graph.replay()
        return self._captured[0]

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._captured = [self._work()]
        self._graph = graph
