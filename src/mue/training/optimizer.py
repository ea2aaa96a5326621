"""AdamW with clipping and an EMA of the weights, on all parameters in one flat buffer."""

import itertools
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.config.schema import TrainConfig

_ALIGNMENT = 64  # each parameter starts at a multiple of 256 bytes, as the fastest kernels want it


class FlatAdamW:
    """One optimizer step for all parameters: clip the gradient, AdamW, EMA.

    The data of all parameters are moved into one buffer, one after the other, with zeros in the
    gaps: a step is then a few operations on one tensor. The parameters are the same objects as
    before, so modules and autograd need not know. The betas are PyTorch's default, 0.9 and 0.999;
    the paper gives none.

    Attributes:
        buffer: All parameters.
        parameters: Each of them, a view of the buffer.
        lr: The learning rate, a tensor on the device.
        state: AdamW's own, by the names that PyTorch gives it.
        grads: The gradient of each parameter, a view of one buffer.
        ema: The exponential moving average (EMA) of each parameter, a view of one buffer; without
            one (`train.ema` is 0) the parameters themselves.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], config: TrainConfig) -> None:
        self.parameters = list(parameters)
        sizes = [-(-p.numel() // _ALIGNMENT) * _ALIGNMENT for p in self.parameters]
        self._offsets = [0, *itertools.accumulate(sizes)]
        first = self.parameters[0] if self.parameters else torch.empty(0)
        buffer = torch.zeros(self._offsets[-1], dtype=first.dtype, device=first.device)
        for p, view in zip(self.parameters, self.views(buffer), strict=True):
            p.data = view.copy_(p.data)
        lr = torch.tensor(config.lr, device=buffer.device)
        self._adamw = torch.optim.AdamW(
            [buffer], lr, weight_decay=config.weight_decay, fused=True, capturable=buffer.is_cuda
        )
        self.lr: Tensor = self._adamw.param_groups[0]["lr"]
        self.state = self._adamw.state[buffer]
        self.state["step"] = torch.zeros((), device=buffer.device)
        self.state["exp_avg"] = torch.zeros_like(buffer)
        self.state["exp_avg_sq"] = torch.zeros_like(buffer)
        self._max_norm = config.clip
        self.buffer, self.gradient = buffer, torch.zeros_like(buffer)
        self._ema = buffer.clone() if config.ema > 0 else buffer
        self.grads, self.ema = self.views(self.gradient), self.views(self._ema)

    def views(self, buffer: Float[Tensor, " n"]) -> list[Tensor]:
        """What belongs to each parameter in a buffer of the same layout."""
        return [
            buffer.as_strided(p.shape, p.stride(), buffer.storage_offset() + offset)
            for p, offset in zip(self.parameters, self._offsets, strict=False)
        ]

    def collect_(self) -> None:
        """Take the gradients from where autograd has put them; there they are used up."""
        for grad, p in zip(self.grads, self.parameters, strict=True):
            if p.grad is None:  # what the loss does not depend on
                grad.zero_()
            else:
                grad.copy_(p.grad)
                p.grad = None

    def round_(self) -> None:
        """Follow parameters that were changed from outside: nothing to do for float32."""

    def update_(self, ema_decay: Float[Tensor, ""]) -> None:
        """Update the parameters by their gradients, and then their EMA."""
        gradient = self.gradient
        if self._max_norm:
            norm = torch.linalg.vector_norm(gradient)
            gradient = gradient * (self._max_norm / (norm + 1e-6)).clamp(max=1.0)
        self.adamw_(gradient)
        if self._ema is not self.buffer:
            self._ema.lerp_(self.buffer, 1 - ema_decay)

    def adamw_(self, gradient: Float[Tensor, " n"]) -> None:
        """AdamW alone."""
        self.buffer.grad = gradient
        self._adamw.step()
        self.buffer.grad = None
