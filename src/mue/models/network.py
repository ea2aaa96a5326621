"""What every trained network can do, whatever the method: answer."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Proposal:
    """Answers of a network, before their logits become pixels, the most probable first.

    `code` is the row of the code book behind an answer, or -1 where there is none.
    """

    logits: Float[Tensor, "b k *y"]
    prob: Float[Tensor, "b k"]
    code: Int[Tensor, "b k"]


def equally_probable(logits: Float[Tensor, "b k *y"]) -> Proposal:
    """Answers without a ranking: samples, members, heads."""
    b, k = logits.shape[:2]
    prob = torch.full((b, k), 1 / k, device=logits.device)
    return Proposal(logits, prob, torch.full_like(prob, -1, dtype=torch.long))


@runtime_checkable
class Network(Protocol):
    """θ of any method."""

    axes: int
    """Axes of an input without the batch: 3 for images, 1 for vectors."""

    @property
    def max_answers(self) -> int | None:
        """How many different answers there are to an input; None where each call samples anew."""
        ...

    def propose(
        self,
        x: Float[Tensor, "b *x"],
        k: int,
        *,
        min_prob: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Proposal:
        """The k most probable answers, or k samples, by the generator's random numbers."""
        ...

    def forward_passes(self, k: int) -> int:
        """The number of forward passes for k answers to an input."""
        ...
