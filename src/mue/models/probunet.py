"""Probabilistic U-Net (Kohl et al. 2018): a Gaussian latent that must be sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.models.network import Proposal, equally_probable
from mue.nn.backbone import Decoder, Encoder, Features


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Axis-aligned normal distributions.

    Attributes:
        mean: As said.
        log_std: Logarithm of the deviation along each axis.
    """

    mean: Float[Tensor, "*b d"]
    log_std: Float[Tensor, "*b d"]

    def at(self, noise: Float[Tensor, "*c d"]) -> Float[Tensor, "*c d"]:
        """The points that belong to standard normal noise."""
        return self.mean + self.log_std.exp() * noise

    def log_density(self, z: Float[Tensor, "*c d"]) -> Float[Tensor, "*c"]:
        """Logarithm of the density at each point."""
        gap = (z - self.mean) / self.log_std.exp()
        constant = 0.5 * math.log(2 * math.pi)
        return -(0.5 * gap.square() + self.log_std + constant).sum(dim=-1)

    def divergence(self, other: Gaussian) -> Float[Tensor, "*c"]:
        """KL(self || other), in nats."""
        ratio = (2 * (self.log_std - other.log_std)).exp()
        gap = ((self.mean - other.mean) / other.log_std.exp()).square()
        return (0.5 * (ratio + gap - 1) + other.log_std - self.log_std).sum(dim=-1)


class GaussianNet(nn.Module):
    """An encoder with a Gaussian at its end: the prior of x, or the posterior of (x, y)."""

    def __init__(self, encoder: Encoder, read: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.read = read

    def forward(self, x: Float[Tensor, "b *x"]) -> Gaussian:
        """The distribution of each input, in float32."""
        mean, log_std = self.read(self.encoder(x).pooled).float().chunk(2, dim=1)
        return Gaussian(mean, log_std)


@dataclass(frozen=True, slots=True)
class Samples:
    """Answers drawn for each input.

    Attributes:
        logits: Of each answer.
        z: The latent behind it.
        log_density: Logarithm of the prior's density there. It ranks latents, not answers.
        peak: Logarithm of the highest density of each prior, which is at its mean.
    """

    logits: Float[Tensor, "b k *y"]
    z: Float[Tensor, "b k d"]
    log_density: Float[Tensor, "b k"]
    peak: Float[Tensor, " b"]


class ProbUNet(nn.Module):
    """A U-Net whose last features are joined with a latent drawn from a prior network.

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
        """One look at the input, however many samples."""
        del k
        return 1

    def decode(self, features: Features, z: Float[Tensor, "b k d"]) -> Float[Tensor, "b k *y"]:
        """Logits of the answer that each latent leads to, in float32."""
        return self.decoder(features, z).float()

    def sample(
        self, x: Float[Tensor, "b *x"], k: int, generator: torch.Generator | None = None
    ) -> Samples:
        """Draw k answers to each input, each with the density of its latent."""
        prior = self.prior(x)
        at = Gaussian(prior.mean[:, None], prior.log_std[:, None])
        shape = (len(x), k, prior.mean.shape[1])
        where = generator.device if generator is not None else x.device
        z = at.at(torch.randn(shape, generator=generator, device=where).to(x.device))
        peak = prior.log_density(prior.mean)
        return Samples(self.decode(self.encoder(x), z), z, at.log_density(z), peak)

    def propose(
        self,
        x: Float[Tensor, "b *x"],
        k: int,
        *,
        min_prob: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Proposal:
        """Draw k samples, each of probability 1/k."""
        del min_prob
        return equally_probable(self.sample(x, k, generator).logits)
