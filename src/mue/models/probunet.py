"""Probabilistic U-Net (Kohl et al. 2018): a Gaussian latent that must be sampled."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from mue.models.network import Proposal, equally_probable
from mue.models.posterior import concatenate
from mue.nn.across import ALONE, Across
from mue.nn.backbone import Decoder, Encoder, Features
from mue.types import LatentTrace, Trace


class GaussianNet(nn.Module):
    """An encoder with a Gaussian at its end: the prior of x, or the posterior of (x, y)."""

    def __init__(self, encoder: Encoder, read: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.read = read

    def forward(self, x: Float[Tensor, "b *x"]) -> Normal:
        """A normal distribution for each input and axis of the latent (b d), in float32."""
        mean, log_std = self.read(self.encoder(x).pooled).float().chunk(2, dim=1)
        return Normal(mean, log_std.exp(), validate_args=False)  # checking synchronizes the device


@dataclass(frozen=True, slots=True)
class Samples:
    """Answers sampled for each input, each with the latent z behind it.

    `log_density` is the logarithm of the prior's density at z, which ranks latents, not answers;
    `peak` is its highest value, that at the prior's mean.
    """

    logits: Float[Tensor, "b k *y"]
    z: Float[Tensor, "b k d"]
    log_density: Float[Tensor, "b k"]
    peak: Float[Tensor, " b"]


class ProbUNet(nn.Module):
    """A U-Net whose last features are joined with a latent sampled from a prior network.

    The U-Net runs once for all samples of an input; a sample costs the 1x1 convolutions after it.
    """

    max_answers: int | None = None

    def __init__(self, encoder: Encoder, prior: GaussianNet, decoder: Decoder) -> None:
        super().__init__()
        self.axes = encoder.axes
        self.encoder = encoder
        self.prior = prior
        self.decoder = decoder

    def forward_passes(self, k: int) -> int:
        """One, for any number of samples."""
        del k
        return 1

    def decode(self, features: Features, z: Float[Tensor, "b k d"]) -> Float[Tensor, "b k *y"]:
        """Logits of the answer for each latent, in float32."""
        return self.decoder(features, z).float()

    def sample(
        self, x: Float[Tensor, "b *x"], k: int, generator: torch.Generator | None = None
    ) -> Samples:
        """Sample k answers to each input, each with the density of its latent."""
        prior = self.prior(x)
        each = Normal(prior.loc[:, None], prior.scale[:, None], validate_args=False)
        shape = (len(x), k, prior.loc.shape[1])
        device = generator.device if generator is not None else x.device
        noise = torch.randn(shape, generator=generator, device=device).to(x.device)
        z = each.loc + each.scale * noise
        return Samples(
            logits=self.decode(self.encoder(x), z),
            z=z,
            log_density=each.log_prob(z).sum(dim=-1),
            peak=prior.log_prob(prior.loc).sum(dim=-1),
        )

    def propose(
        self,
        x: Float[Tensor, "b *x"],
        k: int,
        *,
        min_prob: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Proposal:
        """Sample k answers, each of probability 1/k."""
        del min_prob
        return equally_probable(self.sample(x, k, generator).logits)


class LatentLearner(nn.Module):
    """Probabilistic U-Net: each answer is decoded from a latent sampled from its posterior."""

    def __init__(self, network: ProbUNet, posterior: GaussianNet) -> None:
        super().__init__()
        self.network = network
        self.posterior = posterior

    def forward(self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> LatentTrace:
        """Encode, sample, decode."""
        b, r = y.shape[:2]
        flat = self.posterior(concatenate(x, y))
        mean, std = (t.unflatten(0, (b, r)) for t in (flat.loc, flat.scale))
        posterior = Normal(mean, std, validate_args=False)
        prior = self.network.prior(x)
        z = mean + std * torch.randn_like(mean)
        logits = self.network.decode(self.network.encoder(x), z)
        each = Normal(prior.loc[:, None], prior.scale[:, None], validate_args=False)
        return LatentTrace(logits, kl_divergence(posterior, each).sum(dim=-1))

    def settle_(self, trace: Trace, across: Across = ALONE) -> None:
        """Nothing to do: there is no code book."""
