"""What an accelerated training keeps for the layers of its networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mue.kernels.streams import SideStreams
from mue.training.optimizer import FlatAdamW

Layer = nn.Conv2d | nn.Linear


@dataclass(frozen=True, slots=True)
class LayerBuffers:
    """Buffers for some layers, one entry for each.

    Attributes:
        weights: Their weights in bfloat16, each followed by its bias.
        grads: Where the gradients of weight and bias are added, o ky kx i in memory or o i.
        streams: Where they are computed; None leaves the gradients to autograd.
    """

    weights: Sequence[tuple[Tensor, Tensor | None]]
    grads: Sequence[tuple[Tensor, Tensor]] = ()
    streams: SideStreams | None = None

    @classmethod
    def rounded(cls, layers: Sequence[Layer]) -> LayerBuffers:
        """Weights rounded now, and gradients by autograd."""
        return cls([(layer.weight.to(torch.bfloat16), layer.bias) for layer in layers])


class Buffers:
    """The buffers of all parameters of an optimizer, found by the layer."""

    def __init__(
        self, optimizer: FlatAdamW, rounded: Sequence[Tensor], streams: SideStreams | None
    ) -> None:
        ids = [id(p) for p in optimizer.parameters]
        self._rounded = dict(zip(ids, rounded, strict=True))
        self._grads = dict(zip(ids, optimizer.grads, strict=True))
        self._streams = streams

    def of(self, layers: Sequence[Layer]) -> LayerBuffers:
        """Those of some layers, all of which have a bias."""
        grads = [(_nhwc(self._grads[id(m.weight)]), self._grads[id(m.bias)]) for m in layers]
        weights = [(self._rounded[id(m.weight)], self._rounded[id(m.bias)]) for m in layers]
        contiguous = all(weight.is_contiguous() for weight, _ in grads)
        return LayerBuffers(weights, grads, self._streams if contiguous else None)


def _nhwc(grad: Tensor) -> Tensor:
    return grad.permute(0, 2, 3, 1) if grad.ndim == 4 else grad
