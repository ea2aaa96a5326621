"""What every data set offers."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from mue.types import Case, Pair


@runtime_checkable
class Source(Protocol):
    """A data set whose item i depends on (seed, i) alone."""

    device: torch.device
    resident: bool
    """Whether a pair is made on the device alone, or must be brought there."""

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        """Inputs with answers drawn for them: training."""
        ...

    def case(self, index: Int[Tensor, " b"]) -> Case:
        """The same inputs with every answer known: evaluation."""
        ...
