"""A predictor whose answers and modes are CUDA graphs."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from threading import Lock
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor

from mue.inference.predictor import Predictor
from mue.kernels.graphs import CudaGraph
from mue.kernels.plan import first_line
from mue.models.modal import Modal
from mue.modes import By, ModeRule, Ranking, Tree
from mue.types import Hypotheses

_SMALL = 1 << 21
"""Elements in the answers up to which a GPU waits for the host, and a graph pays."""
_GROUPED = 1 << 24
"""The same for grouping them, which is more launches for less work."""
_KEPT = 8
"""Graphs that are kept: those used last."""


def accelerate_predictor(predictor: Predictor) -> Predictor:
    """On a GPU, the same predictor with CUDA graphs; otherwise the predictor itself."""
    if predictor.device.type != "cuda" or not isinstance(predictor.network, Modal):
        return predictor
    return GraphPredictor(predictor)


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Result]):
    inputs: tuple[Tensor, ...]
    graph: CudaGraph[Result]


class GraphPredictor(Predictor):
    """A predictor that captures what it is asked for again, with the same shape and k.

    A graph reads the weights at their addresses: they may be changed in place, but not exchanged.
    """

    cuda_graph = True

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor.network, predictor.config, half=predictor.half)
        self._entries: OrderedDict[tuple[object, ...], _Entry[Any]] = OrderedDict()
        self._lock = Lock()  # a graph has one buffer for each of its inputs
        self._captures = True

    def _answers(
        self, x: Tensor, k: int, min_prob: float, generator: torch.Generator
    ) -> Hypotheses:
        elements = x.numel() // x.shape[1] * k * self.config.model.c_out
        if min_prob > 0 or elements > _SMALL or not self._captures:
            return super()._answers(x, k, min_prob, generator)
        answer = super()._answers
        with self._lock:
            found = self._replay("answers", lambda x: answer(x, k, 0.0, generator), x, by=k)
            return Hypotheses.unchecked(*(t.clone() for t in (found.y, found.prob, found.code)))

    def _ranked(self, y: Tensor, prob: Tensor, rule: ModeRule, by: By) -> tuple[Tree, Ranking]:
        if by == "code" or y.numel() > _GROUPED or not self._captures:
            return super()._ranked(y, prob, rule, by)
        rank = super()._ranked
        with self._lock:
            found = self._replay("modes", lambda y, p: rank(y, p, rule, by), y, prob, by=rule.cut)
            return _copy(found[0]), _copy(found[1])

    def _replay(
        self, name: str, work: Callable[..., Result], *inputs: Tensor, by: int | float
    ) -> Result:
        """What the work makes of the inputs; besides, it depends on its name and `by` alone."""
        key = (name, by, *(x.shape for x in inputs))
        if key not in self._entries:
            buffers = tuple(x.clone() for x in inputs)
            graph = CudaGraph(
                functools.partial(work, *buffers),
                self.device,
                warmup=1,
                on_failure=self._not_captured,
            )
            self._entries[key] = _Entry(buffers, graph)
        self._entries.move_to_end(key)
        while len(self._entries) > _KEPT:
            self._entries.popitem(last=False)
        entry = self._entries[key]
        for buffer, x in zip(entry.inputs, inputs, strict=True):
            buffer.copy_(x)
        return entry.graph()

    def _not_captured(self, error: RuntimeError) -> None:
        self._captures = False
        warnings.warn(f"answers are not captured: it failed ({first_line(error)})", stacklevel=6)


def _copy(tensors: Result) -> Result:
    """A dataclass of tensors that the next replay does not overwrite."""
    return type(tensors)(*(getattr(tensors, f.name).clone() for f in fields(cast("Any", tensors))))
