"""A predictor whose answers are CUDA graphs."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from mue.inference.predictor import Answers, Predictor
from mue.kernels.graphs import CudaGraph
from mue.kernels.plan import first_line
from mue.models.modal import Modal

_SMALL = 1 << 21
"""Elements in the answers up to which a GPU waits for the host, and a graph pays."""
_KEPT = 8
"""Graphs that are kept: those used last."""


def accelerate_predictor(predictor: Predictor) -> Predictor:
    """On a GPU, the same predictor with CUDA graphs; otherwise the predictor itself."""
    if predictor.device.type != "cuda" or not isinstance(predictor.network, Modal):
        return predictor
    return GraphPredictor(predictor)


@dataclass(frozen=True, slots=True)
class _Entry:
    x: Tensor
    graph: CudaGraph[Answers]


class GraphPredictor(Predictor):
    """A predictor that captures what it is asked for again, with the same shape and k.

    A graph reads the weights at their addresses: they may be changed in place, but not exchanged.
    """

    cuda_graph = True

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor.network, predictor.config, half=predictor.half)
        self._entries: OrderedDict[tuple[torch.Size, int], _Entry] = OrderedDict()
        self._lock = Lock()  # a graph has one buffer for its input
        self._captures = True

    def _answers(self, x: Tensor, k: int, min_prob: float, generator: torch.Generator) -> Answers:
        elements = x.numel() // x.shape[1] * k * self.config.model.c_out
        if min_prob > 0 or elements > _SMALL or not self._captures:
            return super()._answers(x, k, min_prob, generator)
        with self._lock:
            entry = self._entry(x, k)
            entry.x.copy_(x)
            found = entry.graph()
            return Answers(found.y.clone(), found.prob.clone(), found.code.clone())

    def _entry(self, x: Tensor, k: int) -> _Entry:
        key = (x.shape, k)
        if key not in self._entries:
            buffer = x.clone()
            work = functools.partial(super()._answers, buffer, k, 0.0, torch.Generator())
            graph = CudaGraph(work, x.device, warmup=1, on_failure=self._not_captured)
            self._entries[key] = _Entry(buffer, graph)
        self._entries.move_to_end(key)
        while len(self._entries) > _KEPT:
            self._entries.popitem(last=False)
        return self._entries[key]

    def _not_captured(self, error: RuntimeError) -> None:
        self._captures = False
        warnings.warn(f"answers are not captured: it failed ({first_line(error)})", stacklevel=5)
