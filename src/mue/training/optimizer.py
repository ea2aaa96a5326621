"""AdamW with clipping and averaged weights, on all parameters in one flat buffer."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.config.schema import TrainConfig

_ALIGNMENT = 64  # each parameter starts at a multiple of 256 bytes, as the fastest kernels want it


class FlatParameters:
    """Parameters one after the other in one buffer; the gaps between them hold zeros.

    A parameter stays what it was, for modules and for autograd: only its memory has moved.

    Attributes:
        buffer: All of them.
        parameters: Each of them, a view of the buffer.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self._offsets: list[int] = []
        end = 0
        for p in self.parameters:
            self._offsets.append(end)
            end += -(-p.numel() // _ALIGNMENT) * _ALIGNMENT
        first = self.parameters[0] if self.parameters else torch.empty(0)
        self.buffer = torch.zeros(end, dtype=first.dtype, device=first.device)
        for p, view in zip(self.parameters, self.views(self.buffer), strict=True):
            p.data = view.copy_(p.data)

    def views(self, buffer: Float[Tensor, " n"]) -> list[Tensor]:
        """What belongs to each parameter in a buffer of the same layout."""
        return [
            buffer.as_strided(p.shape, p.stride(), buffer.storage_offset() + offset)
            for p, offset in zip(self.parameters, self._offsets, strict=True)
        ]


class FlatAdamW:
    """One optimizer step for all parameters: clip the gradient, AdamW, moving average.

    AdamW's moments decay as PyTorch's do by default, and so the paper's.

    Attributes:
        lr: The learning rate, a tensor on the device.
        state: AdamW's own, by the names that PyTorch gives it.
        grads: The gradient of each parameter, a view of one buffer.
        ema: The exponential moving average of each parameter, a view of one buffer.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], config: TrainConfig) -> None:
        self.flat = FlatParameters(parameters)
        buffer, lr = self.flat.buffer, torch.tensor(config.lr, device=self.flat.buffer.device)
        self._adamw = torch.optim.AdamW(
            [buffer], lr, weight_decay=config.weight_decay, fused=True, capturable=buffer.is_cuda
        )
        self.lr: Tensor = self._adamw.param_groups[0]["lr"]
        self.state = self._adamw.state[buffer]
        self.state["step"] = torch.zeros((), device=buffer.device)
        self.state["exp_avg"] = torch.zeros_like(buffer)
        self.state["exp_avg_sq"] = torch.zeros_like(buffer)
        self._max_norm = config.clip
        self.gradient = torch.zeros_like(buffer)
        self.grads = self.flat.views(self.gradient)
        self._ema = self.flat.buffer.clone()
        self.ema = self.flat.views(self._ema)

    def step_(self, ema_decay: Float[Tensor, ""]) -> None:
        """Update the parameters by their gradients, which are used up, and then the average."""
        self.collect_()
        self.update_(ema_decay)

    def collect_(self) -> None:
        """Take the gradients from where autograd has put them."""
        for grad, p in zip(self.grads, self.flat.parameters, strict=True):
            if p.grad is None:  # what the loss does not depend on
                grad.zero_()
            else:
                grad.copy_(p.grad)
                p.grad = None

    def update_(self, ema_decay: Float[Tensor, ""]) -> None:
        """Clip, AdamW, average."""
        gradient = self.gradient
        if self._max_norm:
            norm = torch.linalg.vector_norm(gradient)
            gradient = gradient * (self._max_norm / (norm + 1e-6)).clamp(max=1.0)
        self.flat.buffer.grad = gradient
        self._adamw.step()
        self.flat.buffer.grad = None
        self._ema.lerp_(self.flat.buffer, 1 - ema_decay)
