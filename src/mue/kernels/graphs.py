"""Work on a GPU that is launched as one."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

import torch
from torch import Tensor

from mue.nn.streams import beside
from mue.training.plan import reason

Work = Callable[[Tensor], tuple[Tensor, ...]]


class Recording:
    """What some work does with an input of one shape, as a CUDA graph that is replayed.

    Small images leave a GPU waiting for the host that launches one kernel after the other; a replay
    launches all of them at once.
    """

    def __init__(self, work: Work, x: Tensor) -> None:
        self._x = x.clone()
        stream = torch.cuda.Stream(x.device)
        with beside(stream):
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
    """Records what is asked for a second time, and keeps the last few recordings.

    Where recording fails, the work is done as it comes from then on, with a line that says why.
    """

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._works = True
        self._kept: OrderedDict[Hashable, Recording | None] = OrderedDict()
        self._lock = Lock()  # a recording has one place for its input

    def __call__(self, key: Hashable, work: Work, x: Tensor) -> tuple[Tensor, ...]:
        """What the work makes of x; the same key stands for the same work and the same shape."""
        with self._lock:
            recording = self._find(key, work, x)
            return work(x) if recording is None else recording(x)

    def _find(self, key: Hashable, work: Work, x: Tensor) -> Recording | None:
        asked_before = key in self._kept
        recording = self._kept.get(key)
        if recording is None and asked_before and self._works:
            try:
                recording = Recording(work, x)
            except RuntimeError as error:  # no memory is left, or an operator cannot be recorded
                self._works = False
                said = f"answers are not recorded: it failed ({reason(error)})"
                warnings.warn(said, stacklevel=4)
        self._keep(key, recording)
        return recording

    def _keep(self, key: Hashable, recording: Recording | None) -> None:
        self._kept[key] = recording
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
