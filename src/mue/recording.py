"""Work on a GPU that is launched as one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

import torch
from torch import Tensor

Work = Callable[[Tensor], tuple[Tensor, ...]]


class Recording:
    """What some work does with an input of one shape, as a CUDA graph that is replayed.

    Small images leave a GPU waiting for the host that launches one kernel after the other; a replay
    launches all of them at once.
    """

    def __init__(self, work: Work, x: Tensor) -> None:
        self._x = x.clone()
        stream = torch.cuda.Stream(x.device)
        stream.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(stream):
            work(self._x)  # libraries take their memory before they are recorded
        torch.cuda.current_stream(x.device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._found = work(self._x)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """The same for another input."""
        self._x.copy_(x)
        self._graph.replay()
        return tuple(found.clone() for found in self._found)


class Recorder:
    """Records what is asked for a second time, and keeps the last few recordings."""

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Recording | None] = OrderedDict()
        self._lock = Lock()  # a recording has one place for its input

    def __call__(self, key: Hashable, work: Work, x: Tensor) -> tuple[Tensor, ...]:
        """What the work makes of x; the same key stands for the same work and the same shape."""
        with self._lock:
            if key not in self._kept:
                self._keep(key, None)
                return work(x)
            recording = self._kept[key] or Recording(work, x)
            self._keep(key, recording)
            return recording(x)

    def _keep(self, key: Hashable, recording: Recording | None) -> None:
        self._kept[key] = recording
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
