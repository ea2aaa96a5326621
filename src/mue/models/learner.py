"""The ways to train a network: what each makes of a `Pair`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from mue.models.heads import Heads
from mue.models.modal import Modal
from mue.models.network import Network
from mue.models.posterior import Posterior
from mue.models.probunet import GaussianNet, ProbUNet
from mue.nn.streams import beside
from mue.types import ExactTrace, HeadsTrace, LatentTrace, Trace, VqTrace


@runtime_checkable
class Learner(Protocol):
    """A network in training. `forward` reads; `settle_` is the one write that is no gradient."""

    @property
    def network(self) -> Network:
        """θ, all that inference needs."""
        ...

    def __call__(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"], /) -> Trace:
        """What the networks make of the inputs and their answers."""
        ...

    def settle_(self, trace: Trace) -> None:
        """Let the code book follow, after a step."""
        ...


class LatentLearner(nn.Module):
    """Probabilistic U-Net: each answer is decoded from a latent drawn from its posterior."""

    def __init__(self, network: ProbUNet, posterior: GaussianNet) -> None:
        super().__init__()
        self.network = network
        self.posterior = posterior

    def forward(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> LatentTrace:
        """Encode, draw, decode."""
        b, r = y.shape[:2]
        flat = self.posterior(Posterior.beside(x, y))
        mean, std = (t.unflatten(0, (b, r)) for t in (flat.loc, flat.scale))
        posterior = Normal(mean, std, validate_args=False)
        prior = self.network.prior(x)
        z = mean + std * torch.randn_like(mean)
        logits = self.network.decode(self.network.encoder(x), z)
        each = Normal(prior.loc[:, None], prior.scale[:, None], validate_args=False)
        return LatentTrace(logits, kl_divergence(posterior, each).sum(dim=-1))

    def settle_(self, trace: Trace) -> None:
        """Nothing is left to do."""


class HeadsLearner(nn.Module):
    """U-Nets and heads without a latent: every one answers."""

    def __init__(self, network: Heads) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> HeadsTrace:
        """Answer; the raters' answers are not looked at here."""
        del y
        return HeadsTrace(self.network(x))

    def settle_(self, trace: Trace) -> None:
        """Nothing is left to do."""


class VqLearner(nn.Module):
    """The paper's: each answer is encoded, takes its nearest code and is decoded from it."""

    def __init__(self, network: Modal, posterior: Posterior) -> None:
        super().__init__()
        self.network = network
        self.posterior = posterior
        self.aside: torch.cuda.Stream | None = None
        """Where φ looks at the answers while θ looks at the inputs; autograd does it alike."""

    def forward(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> VqTrace:
        """Encode, quantize, decode."""
        if self.aside is None:
            view, encoding = self.network(x), self.posterior(x, y)
        else:
            with beside(self.aside):
                encoding = self.posterior(x, y)
            view = self.network(x)
            main = torch.cuda.current_stream(x.device)
            main.wait_stream(self.aside)
            encoding.record_stream(main)
        encoding = encoding.float()
        quantized = self.network.codebook(encoding.flatten(0, 1))
        logits = self.network.decode(view, quantized.code.view_as(encoding))
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
            self.network.codebook.codes.data,
            trace.encoding.detach().flatten(0, 1),
            trace.index.flatten(),
        )

    def revive_(self, trace: VqTrace) -> None:
        """Give the idlest code a new start on the encoding that fits its code the least."""
        self.posterior.usage.revive_(
            self.network.codebook.codes.data,
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
        self.network.codebook.codes.copy_(mean + deviation * normal)


class ExactLearner(nn.Module):
    """Ours: every code is decoded, and the likelihood is summed over the code book itself."""

    def __init__(self, network: Modal) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> ExactTrace:
        """Decode every code; the answers are not looked at here."""
        del y
        view = self.network(x)
        return ExactTrace(view.log_prior, self.network.decode(view, self.network.all_codes(view)))

    def settle_(self, trace: Trace) -> None:
        """Nothing is left to do: the codes learn by gradient."""
