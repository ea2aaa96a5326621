"""How weights follow their gradients: all of them at once, in one piece of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.adamw import adamw

from mue.config.schema import TrainConfig
from mue.nn.flat import Flat

_BETA_1, _BETA_2, _EPS = 0.9, 0.999, 1e-8  # PyTorch's, and so the paper's


class Update:
    """Clipping, AdamW, averaging and rounding, one pass over everything where a compiler fuses it.

    Gradients are collected from autograd before an update, or, where `gathers` says so, they have
    been added to their places, which are zero after each update.

    Attributes:
        lr: The learning rate, a tensor: a recorded step reads it in its replay.
        slots: What AdamW keeps, by the names that PyTorch gives it.
        places: Where the gradient of each weight goes.
        means: The average of each.
        rounded: All weights in bfloat16, where they are kept so.
        sweep: The update itself; somebody may put a compiled one in its place.
    """

    def __init__(
        self,
        weights: Sequence[nn.Parameter],
        config: TrainConfig,
        *,
        fused: bool,
        rounds: bool = False,
        gathers: bool = False,
    ) -> None:
        self._config, self._fused, self._gathers = config, fused, gathers
        self._flat = Flat(weights)
        self._whole = self._flat.whole
        self._gradient = torch.zeros_like(self._whole)
        self.lr = torch.tensor(config.lr, device=self._whole.device)
        self.slots = {
            "step": torch.zeros((), device=self._whole.device),
            "exp_avg": torch.zeros_like(self._whole),
            "exp_avg_sq": torch.zeros_like(self._whole),
        }
        self.places = self._flat.views(self._gradient)
        self._mean = self._whole.clone()
        self.means = self._flat.views(self._mean)
        self._narrow = self._whole.bfloat16() if rounds else None
        self.rounded = [] if self._narrow is None else self._flat.views(self._narrow)
        self.sweep: Callable[[Float[Tensor, ""]], None] = self.sweep_

    def collect_(self) -> None:
        """Take the gradients from where autograd has put them."""
        places: list[Tensor] = []
        found: list[Tensor] = []
        for place, p in zip(self.places, self._flat.weights, strict=True):
            if p.grad is None:  # what the loss does not depend on
                place.zero_()
            else:
                places.append(place)
                found.append(p.grad)
                p.grad = None
        torch._foreach_copy_(places, found)  # pyright: ignore[reportPrivateImportUsage]

    def round_(self) -> None:
        """Round the weights; an update does it too."""
        if self._narrow is not None:
            self._narrow.copy_(self._whole)

    def sweep_(self, decay: Float[Tensor, ""]) -> None:
        """Let the weights follow their gradients, which are used up, and their averages them."""
        gradient = self._gradient
        if most := self._config.clip:
            norm = torch.linalg.vector_norm(gradient)
            gradient = gradient * (most / (norm + 1e-6)).clamp(max=1.0)
        adamw(
            [self._whole],
            [gradient],
            [self.slots["exp_avg"]],
            [self.slots["exp_avg_sq"]],
            [],
            [self.slots["step"]],
            foreach=False,
            fused=self._fused,
            capturable=self._whole.is_cuda,
            amsgrad=False,
            beta1=_BETA_1,
            beta2=_BETA_2,
            lr=self.lr,
            weight_decay=self._config.weight_decay,
            eps=_EPS,
            maximize=False,
        )
        self._mean.lerp_(self._whole, 1 - decay)
        self.round_()
        if self._gathers:
            self._gradient.zero_()
