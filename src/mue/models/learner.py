"""The ways to train a network with codes: what each makes of a `Pair`."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.models.modal import Modal, View
from mue.models.network import Network
from mue.models.posterior import Posterior
from mue.nn.across import ALONE, Across
from mue.types import ExactTrace, Trace, VqTrace


@runtime_checkable
class Learner(Protocol):
    """A network in training, an `nn.Module`.

    `forward` only reads; `settle_` is the one write that is not a gradient step.
    """

    if TYPE_CHECKING:  # since Python 3.12 isinstance does not see the submodules of an nn.Module

        @property
        def network(self) -> Network:
            """θ."""
            ...

    def __call__(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"], /) -> Trace:
        """What the networks make of the inputs and their answers."""
        ...

    def settle_(self, trace: Trace, across: Across) -> None:
        """Update the code book after a step; a learner without one does nothing.

        The trace may be of a part of the batch; `across` adds up what the parts have.
        """
        ...


class VqLearner(nn.Module):
    """The paper's: each answer is encoded, quantized to its nearest code and decoded from it."""

    def __init__(self, network: Modal, posterior: Posterior) -> None:
        super().__init__()
        self.network = network
        self.posterior = posterior

    def encode(
        self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]
    ) -> tuple[View, Float[Tensor, "b r d"]]:
        """θ of the inputs and φ of the answers, neither of which needs the other."""
        return self.network(x), self.posterior(x, y)

    def forward(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> VqTrace:
        """Encode, quantize, decode."""
        view, encoding = self.encode(x, y)
        encoding = encoding.float()
        quantized = self.network.codebook(encoding.flatten(0, 1))
        logits = self.network.decode(view, quantized.code.view_as(encoding))
        index, distance = (t.view(y.shape[:2]) for t in (quantized.index, quantized.distance))
        return VqTrace(view.log_prior, logits, encoding, index, distance)

    def settle_(self, trace: Trace, across: Across = ALONE) -> None:
        """Move the codes towards the encodings assigned to them."""
        if not isinstance(trace, VqTrace):
            raise TypeError(f"`trace` must be this learner's own, a VqTrace, got {type(trace)}")
        codes, e = self.network.codebook.codes.data, trace.encoding.detach().flatten(0, 1)
        self.posterior.usage.update_(codes, e, trace.index.flatten(), across)

    @torch.no_grad()
    def start_(
        self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"], normal: Float[Tensor, "n d"]
    ) -> None:
        """Give the codes the mean and deviation of the encodings [paper, section `method`]."""
        encoding = self.posterior(x, y).float().flatten(0, 1)
        deviation, mean = torch.std_mean(encoding, dim=0)
        self.network.codebook.codes.copy_(mean + deviation * normal)


class ExactLearner(nn.Module):
    """Ours: every code is decoded, and the likelihood is summed over the code book itself."""

    def __init__(self, network: Modal) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> ExactTrace:
        """Decode every code; the answers enter only in the objective."""
        del y
        return ExactTrace(*self.network.decode_all(self.network(x)))

    def settle_(self, trace: Trace, across: Across = ALONE) -> None:
        """Nothing to do: the codes are learned by gradient."""
