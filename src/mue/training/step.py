"""A training step: batch, forward, terms, backward, code book, weights."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mue.data.source import Source
from mue.objective import Weights
from mue.training.batches import batches_of
from mue.training.codes import used_codes
from mue.training.schedule import StepScalars
from mue.training.state import Training
from mue.types import Terms, Trace


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a batch: trace, terms, codes in use, and whether the loss is not finite."""

    trace: Trace
    terms: Terms
    used: Tensor
    non_finite: Tensor


class TrainStep:
    """One step. A batch may be computed in parts, whose gradients add up.

    `prepare_` is what the host does before it, a call what the device does. The other methods are
    the stages of a step, in their order.
    """

    def __init__(self, training: Training, source: Source) -> None:
        self.training = training
        self.module = training.across.replicate(self.make_module())
        self.scalars = StepScalars(training.config, training.device, training.optimizer.lr)
        self.batches = batches_of(training.config, training.device, source, self.scalars.first)

    def make_module(self) -> nn.Module:
        """What computes the trace of a batch."""
        return self.training.module

    def prepare_(self, number: int) -> Weights:
        """Fetch the batch of the step after `number` steps; returns the weights of its terms."""
        weights = self.scalars.set_(number)
        self.batches.load_(number)
        return weights

    def __call__(self, weights: Weights) -> Taken:
        """Batch, forward and terms of each part, backward, the code book, the weights."""
        parts = self.training.config.compute.accumulate
        traces, terms = list[Trace](), list[Terms]()

        def loss(part: int) -> Tensor:
            trace, each = self.losses(part, weights)
            traces.append(trace)
            terms.append(each.detached())
            return each.total if parts == 1 else each.total / parts

        with self.training.across.no_sync(self.module):
            for part in range(parts - 1):
                loss(part).backward()
        taken = self.backward(loss(parts - 1), traces, terms)
        self.training.update_(self.scalars.ema_decay)
        return taken

    def losses(self, part: int, weights: Weights) -> tuple[Trace, Terms]:
        """The trace of a part of the batch, and its terms."""
        config, pair = self.training.config, self.batches(part)
        x = pair.x
        if config.compute.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.training.bfloat16):
            trace = self.module(x, pair.y)
        return trace, self.terms(trace, pair.y, weights)

    def terms(self, trace: Trace, y: Tensor, weights: Weights) -> Terms:
        """The terms of the objective for a trace."""
        training = self.training
        return training.objective(trace, y, training.config.objective, weights, training.across)

    def backward(self, loss: Tensor, traces: Sequence[Trace], terms: Sequence[Terms]) -> Taken:
        """The gradients of the last part; then the code book follows the whole batch."""
        loss.backward()
        return self.settle_(traces, terms)

    def settle_(self, traces: Sequence[Trace], terms: Sequence[Terms]) -> Taken:
        """Update the code book."""
        trace, mean = _concatenated(traces), Terms.mean(terms)
        self.training.learner.settle_(trace, self.training.across)
        return Taken(trace, mean, used_codes(trace), ~mean.total.isfinite())


def _concatenated(traces: Sequence[Trace]) -> Trace:
    """The detached traces of all parts of a batch."""
    names = [f.name for f in dataclasses.fields(traces[0])]
    parts = {name: [getattr(t, name).detach() for t in traces] for name in names}
    whole = {name: torch.cat(p) if len(p) > 1 else p[0] for name, p in parts.items()}
    return dataclasses.replace(traces[0], **whole)
