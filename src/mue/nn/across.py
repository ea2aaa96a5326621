"""What a batch needs that is computed in parts in several places; given from outside."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import Tensor, nn


def _nothing(*_: Tensor) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Across:
    """Reductions over all places in which a part of the batch is; by default there is one.

    Attributes:
        sum_: Sum each tensor, in place.
        max_: Elementwise maximum, in place.
        mean: The mean of a tensor, without its gradient.
        replicate: A module whose gradients are averaged.
        no_sync: Leave them unaveraged within the block: more are to be added before it matters.
    """

    sum_: Callable[..., None] = _nothing
    max_: Callable[[Tensor], None] = _nothing
    mean: Callable[[Tensor], Tensor] = Tensor.detach
    replicate: Callable[[nn.Module], nn.Module] = lambda module: module
    no_sync: Callable[[nn.Module], AbstractContextManager[None]] = lambda _: (
        contextlib.nullcontext()
    )


ALONE = Across()
"""The whole batch is in one place."""
