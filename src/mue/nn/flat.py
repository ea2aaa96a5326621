"""Many small tensors in one piece of memory, so that an update is one pass over it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

_APART = 64  # each starts at a multiple: 256 bytes, as the fastest kernels want it


class Flat:
    """Parameters, one after the other in one piece of memory; the gaps between them hold zeros.

    A parameter stays what it was, for the modules and for autograd: only its memory has moved.

    Attributes:
        whole: The piece.
    """

    def __init__(self, weights: Iterable[nn.Parameter]) -> None:
        self.weights = list(weights)
        self._starts: list[int] = []
        end = 0
        for weight in self.weights:
            self._starts.append(end)
            end += -(-weight.numel() // _APART) * _APART
        first = self.weights[0] if self.weights else torch.empty(0)
        self.whole = torch.zeros(end, dtype=first.dtype, device=first.device)
        for weight, home in zip(self.weights, self.views(self.whole), strict=True):
            weight.data = home.copy_(weight.data)

    def views(self, piece: Float[Tensor, " n"]) -> list[Tensor]:
        """What belongs to each parameter, in a piece like the whole."""
        return [
            piece.as_strided(w.shape, w.stride(), piece.storage_offset() + start)
            for w, start in zip(self.weights, self._starts, strict=True)
        ]
