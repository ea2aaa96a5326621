"""The two ways to train one network: what each makes of a `Pair`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.models.modal import Modal
from mue.models.posterior import Posterior
from mue.types import ExactTrace, Trace, VqTrace


@runtime_checkable
class Learner(Protocol):
    """A network in training. `forward` reads; `settle_` is the one write that is no gradient."""

    modal: Modal

    def __call__(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"], /) -> Trace:
        """What the networks make of the inputs and their answers."""
        ...

    def settle_(self, trace: Trace) -> None:
        """Let the code book follow, after a step."""
        ...


class VqLearner(nn.Module):
    """The paper's: each answer is encoded, takes its nearest code and is decoded from it."""

    def __init__(self, modal: Modal, posterior: Posterior) -> None:
        super().__init__()
        self.modal = modal
        self.posterior = posterior

    def forward(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> VqTrace:
        """Encode, quantize, decode."""
        view = self.modal(x)
        encoding = self.posterior(x, y).float()
        quantized = self.modal.codebook(encoding.flatten(0, 1))
        logits = self.modal.decode(view, quantized.code.view_as(encoding))
        b, r = y.shape[:2]
        return VqTrace(
            view.log_prior,
            logits,
            encoding,
            quantized.index.view(b, r),
            quantized.distance.view(b, r),
        )

    def settle_(self, trace: Trace) -> None:
        """Move the codes towards the encodings assigned to them."""
        if not isinstance(trace, VqTrace):
            raise TypeError(f"`trace` must be this learner's own, a VqTrace, got {type(trace)}")
        self.posterior.usage.update_(
            self.modal.codebook.codes.data,
            trace.encoding.detach().flatten(0, 1),
            trace.index.flatten(),
        )

    def revive_(self, trace: VqTrace) -> None:
        """Give the idlest code a new start on the encoding that fits its code the least."""
        self.posterior.usage.revive_(
            self.modal.codebook.codes.data,
            trace.encoding.detach().flatten(0, 1),
            trace.distance.detach().flatten(),
        )

    @torch.no_grad()
    def start_(
        self,
        x: Float[Tensor, "b *x"],
        y: Float[Tensor, "b r *y"],
        normal: Float[Tensor, "n d"],
    ) -> None:
        """Give the codes the mean and deviation of the encodings [paper, section `method`]."""
        encoding = self.posterior(x, y).float().flatten(0, 1)
        deviation, mean = torch.std_mean(encoding, dim=0)
        self.modal.codebook.codes.copy_(mean + deviation * normal)


class ExactLearner(nn.Module):
    """Ours: every code is decoded, and the likelihood is summed over the code book itself."""

    def __init__(self, modal: Modal) -> None:
        super().__init__()
        self.modal = modal

    def forward(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> ExactTrace:
        """Decode every code; the answers are not looked at here."""
        del y
        view = self.modal(x)
        return ExactTrace(view.log_prior, self.modal.decode(view, self.modal.all_codes(view)))

    def settle_(self, trace: Trace) -> None:
        """Nothing is left to do: the codes learn by gradient."""
