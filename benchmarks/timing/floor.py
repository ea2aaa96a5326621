"""The least time that a piece of work takes on a device: what a measured time is compared with.

Operations are those that `torch.utils.flop_counter` counts: two for each multiplication with
addition, in convolutions, matrix products and their gradients. Bytes are those of the tensors that
such an operator is given and returns, each moved once. Pooling, interpolation and concatenation
have bytes alone. Everything else (activations, normalization, sums, losses) is taken as fused into
its neighbours and counts nothing. Then

    floor = sum over operators of max(bytes / bandwidth, operations / peak)
    share = floor / measured time

where bandwidth and peak are measured in the same run (`timer.measure_limits`). The network is run
once in plain PyTorch on tensors without data, whatever executes it when it is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from mue.config.schema import Config
from mue.models.build import build_learner, build_modal
from mue.objective import objective
from mue.training.schedule import weights_at

MEMORY_BOUND = {
    "avg_pool2d",
    "avg_pool2d_backward",
    "upsample_bilinear2d",
    "upsample_bilinear2d_backward",
    "cat",
}
"""Operators that read their first argument, write their result, and hardly compute."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device reaches at best, as measured.

    Attributes:
        bandwidth: Bytes a second, read and written.
        peak: Operations a second.
    """

    bandwidth: float
    peak: float

    def best(self, other: Limits) -> Limits:
        """What was reached in either of two measurements."""
        return Limits(max(self.bandwidth, other.bandwidth), max(self.peak, other.peak))


@dataclass(frozen=True, slots=True)
class Operator:
    """One call of an operator.

    Attributes:
        name: As torch calls it.
        numbers: How many numbers it reads and writes.
        operations: Additions and multiplications.
        width: Bytes of a number, where the precision of the computation does not decide it.
    """

    name: str
    numbers: int
    operations: int = 0
    width: int | None = None

    def bytes(self, width: int) -> int:
        """Bytes it moves, when the computation is in numbers of `width` bytes."""
        return self.numbers * (width if self.width is None else self.width)

    def floor(self, limits: Limits, width: int) -> float:
        """Seconds that it takes at least."""
        return max(self.bytes(width) / limits.bandwidth, self.operations / limits.peak)


@dataclass(frozen=True, slots=True)
class Work:
    """All operators of a piece of work."""

    operators: tuple[Operator, ...]

    @property
    def operations(self) -> int:
        """Of all operators."""
        return sum(o.operations for o in self.operators)

    def bytes(self, width: int) -> int:
        """Of all operators, numbers taking `width` bytes."""
        return sum(o.bytes(width) for o in self.operators)

    def floor(self, limits: Limits, width: int) -> float:
        """Seconds that the work takes at least, one operator after the other."""
        return sum(o.floor(limits, width) for o in self.operators)


class OperatorCounter(TorchDispatchMode):
    """Collects the operators that run inside it, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Operator] = []

    def __torch_dispatch__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator and count it."""
        del types
        kwargs = kwargs or {}
        out, packet = func(*args, **kwargs), func.overloadpacket
        if packet in flop_registry:
            operations = flop_registry[packet](*args, **kwargs, out_val=out)
            self.found.append(Operator(packet.__name__, _numel(args, kwargs, out), operations))
        elif packet.__name__ in MEMORY_BOUND:
            self.found.append(Operator(packet.__name__, _numel(args[0], out)))
        return out


def _numel(*trees: Any) -> int:
    return sum(leaf.numel() for leaf in tree_leaves(trees) if isinstance(leaf, Tensor))


def count(work: Callable[[], object]) -> Work:
    """The operators that a function runs."""
    with OperatorCounter() as counter:
        work()
    return Work(tuple(counter.found))


def optimizer_step(weights: int, *, ema: bool) -> Operator:
    """A step of AdamW in float32, which no neighbour can take over.

    It reads weight, gradient and two moments and writes all but the gradient; an exponential moving
    average of the weights is read and written too.
    """
    return Operator("optimizer step", weights * (9 if ema else 7), width=4)


def count_step(config: Config, size: tuple[int, int]) -> Work:
    """A step of training, on images of that height and width."""
    b, r, m = config.train.batch, config.data.answers, config.model
    with FakeTensorMode():  # shapes without data: nothing is computed
        learner = build_learner(config)
        x, y = torch.empty(b, m.c_in, *size), torch.empty(b, r, m.c_out, *size)

        def step() -> None:
            terms = objective(learner(x, y), y, config.objective, weights_at(config, 0))
            terms.total.backward()

        found = count(step).operators
    learned = sum(p.numel() for p in learner.parameters() if p.requires_grad)
    return Work((*found, optimizer_step(learned, ema=config.train.ema > 0)))


def count_answers(config: Config, k: int, size: tuple[int, int]) -> Work:
    """The answers of k codes to one image, from one forward pass of the encoder."""
    with FakeTensorMode():
        network = build_modal(config).requires_grad_(False)
        x = torch.empty(1, config.model.c_in, *size)
        codes = torch.empty(1, k, config.codebook.width)
        return count(lambda: network.decode(network(x), codes))
