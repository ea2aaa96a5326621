"""Bytes and operations that a piece of work cannot do without, and the time they imply.

Counted is the plain network, whatever executes it in the end. A convolution or a matrix product
reads what it is given once and writes its result once, and so do its two gradients; it takes two
operations for each multiplication with addition. Resampling, pooling and concatenation read and
write once. Everything else (activations, normalization, sums, losses) is taken as fused into its
neighbours and counts nothing. So a step is at least

    floor = sum over these operators of max(bytes / bandwidth, operations / peak).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from mue.config.schema import Config
from mue.models.build import build_learner, build_modal
from mue.objective import objective
from mue.training.loop import weights_at

Shape = Sequence[int]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device can do at the most, as measured.

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
    """One operator of the network, or one of its gradients.

    Attributes:
        name: What it does.
        numbers: How many numbers it reads and writes.
        operations: Additions and multiplications.
        width: Bytes of a number, where the precision of computing does not decide it.
    """

    name: str
    numbers: int
    operations: int = 0
    width: int | None = None

    def bytes(self, width: int) -> int:
        """Bytes it moves, when numbers are computed with in `width` bytes."""
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


# --- operators ----------------------------------------------------------------------------------


def convolution(x: Shape, weight: Shape, out: Shape) -> Operator:
    """A convolution: each output is a sum over the window and the channels that enter."""
    return Operator("convolution", _size(x, weight, out), 2 * _size(out) * _size(weight[1:]))


def convolution_backward(
    grad: Shape, x: Shape, weight: Shape, wanted: Sequence[bool] = (True, True)
) -> list[Operator]:
    """The gradients of its input and of its weights, as far as they are wanted."""
    operations = 2 * _size(grad) * _size(weight[1:])
    of_input = Operator("convolution, gradient of input", _size(grad, weight, x), operations)
    of_weight = Operator("convolution, gradient of weights", _size(grad, x, weight), operations)
    return [o for o, want in zip((of_input, of_weight), wanted, strict=False) if want]


def product(a: Shape, b: Shape) -> Operator:
    """A matrix product, or a batch of them."""
    out = [*a[:-1], b[-1]]
    return Operator("product", _size(a, b, out), 2 * _size(out) * a[-1])


def moved(name: str, *shapes: Shape) -> Operator:
    """An operator that moves numbers and hardly computes."""
    return Operator(name, _size(*shapes))


def update(weights: int, *, averaged: bool) -> Operator:
    """A step of AdamW in float32, which no neighbour can take over.

    It reads weight, gradient and two moments and writes all but the gradient; averaged weights are
    read and written beside them.
    """
    return Operator("update of weights", weights * (9 if averaged else 7), width=4)


def _size(*shapes: Shape) -> int:
    return sum(math.prod(shape) for shape in shapes)


# --- counting -----------------------------------------------------------------------------------

_MOVERS = {
    "avg_pool2d": "pooling",
    "avg_pool2d_backward": "pooling, gradient",
    "upsample_bilinear2d": "doubling",
    "upsample_bilinear2d_backward": "doubling, gradient",
}


class Counter(TorchDispatchMode):
    """Notes the operators that run inside it, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Operator] = []

    def __torch_dispatch__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator and note what it could not do without."""
        del types
        out = func(*args, **(kwargs or {}))
        self.found += _operators(func.overloadpacket.__name__, args, out)
        return out


def _operators(name: str, args: tuple[Any, ...], out: Any) -> Iterable[Operator]:
    match name:
        case "convolution":
            return [convolution(args[0].shape, args[1].shape, out.shape)]
        case "convolution_backward":
            grad, x, weight = (a.shape for a in args[:3])
            return convolution_backward(grad, x, weight, args[-1])
        case "mm" | "bmm":
            return [product(args[0].shape, args[1].shape)]
        case "addmm" | "baddbmm":
            return [product(args[1].shape, args[2].shape)]
        case "cat":
            parts = cast("list[Tensor]", args[0])
            return [moved("concatenation", *(p.shape for p in parts), out.shape)]
        case _ if name in _MOVERS:
            return [moved(_MOVERS[name], args[0].shape, out.shape)]
        case _:
            return []


def count(work: Callable[[], object]) -> Work:
    """The operators that a function runs."""
    with Counter() as counter:
        work()
    return Work(tuple(counter.found))


def count_step(config: Config, size: tuple[int, int]) -> Work:
    """A step of training, on images of that height and width."""
    b, r, m = config.train.batch, config.data.answers, config.model
    with FakeTensorMode():  # shapes without numbers: nothing is computed
        learner = build_learner(config)
        x, y = torch.empty(b, m.c_in, *size), torch.empty(b, r, m.c_out, *size)

        def step() -> None:
            weights, likelihood = weights_at(config, 0), config.objective.likelihood
            terms = objective(learner(x, y), y, weights, likelihood, config.objective.deviation)
            terms.total.backward()

        found = count(step).operators
    learned = sum(p.numel() for p in learner.parameters() if p.requires_grad)
    return Work((*found, update(learned, averaged=config.train.average > 0)))


def count_answers(config: Config, k: int, size: tuple[int, int]) -> Work:
    """The answers of k codes to one image, from one look at it."""
    with FakeTensorMode():
        network = build_modal(config).requires_grad_(False)
        x = torch.empty(1, config.model.c_in, *size)
        codes = torch.empty(1, k, config.codebook.width)
        return count(lambda: network.decode(network(x), codes))
