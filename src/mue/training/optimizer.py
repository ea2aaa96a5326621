"""AdamW with clipping and averaged weights, on all parameters in one flat buffer."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.adamw import adamw

from mue.config.schema import TrainConfig

_BETA_1, _BETA_2, _EPS = 0.9, 0.999, 1e-8  # PyTorch's, and so the paper's
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

    Attributes:
        lr: The learning rate, a tensor on the device.
        state: AdamW's own, by the names that PyTorch gives it.
        grads: The gradient of each parameter, a view of one buffer.
        ema: The exponential moving average of each parameter, a view of one buffer.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], config: TrainConfig) -> None:
        self._config = config
        self.flat = FlatParameters(parameters)
        self.gradient = torch.zeros_like(self.flat.buffer)
        self.lr = torch.tensor(config.lr, device=self.flat.buffer.device)
        self.state = {
            "step": torch.zeros((), device=self.flat.buffer.device),
            "exp_avg": torch.zeros_like(self.flat.buffer),
            "exp_avg_sq": torch.zeros_like(self.flat.buffer),
        }
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
        if max_norm := self._config.clip:
            norm = torch.linalg.vector_norm(gradient)
            gradient = gradient * (max_norm / (norm + 1e-6)).clamp(max=1.0)
        adamw(
            [self.flat.buffer],
            [gradient],
            [self.state["exp_avg"]],
            [self.state["exp_avg_sq"]],
            [],
            [self.state["step"]],
            foreach=False,
            fused=True,
            capturable=self.flat.buffer.is_cuda,
            amsgrad=False,
            beta1=_BETA_1,
            beta2=_BETA_2,
            lr=self.lr,
            weight_decay=self._config.weight_decay,
            eps=_EPS,
            maximize=False,
        )
        self._ema.lerp_(self.flat.buffer, 1 - ema_decay)
