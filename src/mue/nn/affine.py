"""A linear layer that sends its gradients on errands."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import Function

from mue.nn.shared import Shared
from mue.nn.streams import Errands


class Affine(nn.Linear):
    """PyTorch's; in a training that has errands, nobody waits for the gradients of its weights."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__(c_in, c_out)
        self.shared: Shared | None = None
        """What a training keeps for it."""

    def forward(self, input: Float[Tensor, "b i"]) -> Float[Tensor, "b o"]:  # noqa: A002
        """Weigh each input; it has the name that PyTorch gives it."""
        kept = self.shared
        if kept is None or kept.errands is None:
            return super().forward(input)
        return _Affine.apply(kept, kept.errands, input, self.weight)

    def layers(self) -> list[nn.Linear]:
        """Itself."""
        return [self]


class _Affine(Function):
    @staticmethod
    def forward(ctx: Any, kept: Shared, errands: Errands, x: Tensor, weight: Tensor) -> Tensor:
        del weight  # it is there for autograd
        w, bias = kept.rounded[0]
        x = x.to(w.dtype)
        ctx.kept, ctx.errands = kept, errands
        ctx.save_for_backward(x)
        return F.linear(x, w, bias)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[None, None, Tensor, None]:
        kept: Shared = ctx.kept
        errands: Errands = ctx.errands
        (x,), (g,) = ctx.saved_tensors, grad_outputs
        weight, bias = kept.places[0]
        now = errands.moment(x.device)
        dx = g @ kept.rounded[0][0]
        with errands.errand(weight, x, g, since=now):
            many = g.float()
            weight.addmm_(many.T, x.float())
            bias += many.sum(dim=0)
        return None, None, dx, None
