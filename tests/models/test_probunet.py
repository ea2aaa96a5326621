import math

import pytest
import torch
from torch import Tensor

from mue.config.schema import Config, LatentConfig, ModelConfig
from mue.models.build import build_network
from mue.models.probunet import ProbUNet


@pytest.fixture
def network() -> ProbUNet:
    torch.manual_seed(0)
    model = ModelConfig(
        levels=(4, 6), tail=(), widths=(4,), code_level=3, join="concatenate", readout=3
    )
    made = build_network(Config(method="probunet", model=model, latent=LatentConfig(width=3)))
    assert isinstance(made, ProbUNet)
    return made.requires_grad_(False).eval()


def log_density(z: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Of a normal distribution with independent axes, written out."""
    gap = (z - mean) / log_std.exp()
    return -(0.5 * gap.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(dim=-1)


# --- the prior ------------------------------------------------------------------------------------


def test_the_prior_reads_the_mean_and_the_logarithm_of_the_deviation(network):
    x = torch.randn(2, 1, 8, 8)
    mean, log_std = network.prior.read(network.prior.encoder(x).pooled).chunk(2, dim=1)
    prior = network.prior(x)
    assert torch.equal(prior.loc, mean)
    assert torch.equal(prior.scale, log_std.exp())


def test_a_latent_is_the_mean_plus_the_deviation_times_the_noise_to_the_bit(network):
    x = torch.randn(2, 1, 8, 8)
    prior, z = network.prior(x), network.sample(x, 5, torch.Generator().manual_seed(3)).z
    noise = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(3))
    assert torch.equal(z, prior.loc[:, None] + prior.scale[:, None] * noise)


def test_the_log_density_by_hand():
    """Of N(1, 2²) two deviations from its mean: -2 - ln 2 - ln(2 pi) / 2."""
    expected = -2 - math.log(2) - 0.5 * math.log(2 * math.pi)
    found = log_density(torch.tensor([[5.0]]), torch.ones(1, 1), torch.full((1, 1), math.log(2)))
    torch.testing.assert_close(found, torch.tensor([expected]))


# --- samples --------------------------------------------------------------------------------------


def test_the_u_net_and_the_prior_look_once_whatever_the_number_of_samples(network):
    seen: list[tuple[str, int]] = []
    for name, part in (("encoder", network.encoder), ("prior", network.prior.encoder)):
        part.register_forward_hook(lambda _m, x, _y, n=name: seen.append((n, len(x[0]))))
    for stage in network.decoder.stages:
        stage.register_forward_hook(lambda _m, x, _y: seen.append(("stage", len(x[0]))))
    network.sample(torch.randn(2, 1, 8, 8), 7)
    assert sorted(seen) == [("encoder", 2), ("prior", 2), ("stage", 2), ("stage", 2)]
    assert network.forward_passes(1000) == 1


def test_a_sample_is_the_decoding_of_its_latent_and_carries_its_density(network):
    x = torch.randn(2, 1, 8, 8)
    found = network.sample(x, 5, torch.Generator().manual_seed(3))
    prior, features = network.prior(x), network.encoder(x)
    for i in range(5):
        alone = network.decode(features, found.z[:, i : i + 1])
        torch.testing.assert_close(found.logits[:, i : i + 1], alone)
        torch.testing.assert_close(
            found.log_density[:, i], log_density(found.z[:, i], prior.loc, prior.scale.log())
        )
    torch.testing.assert_close(found.peak, log_density(prior.loc, prior.loc, prior.scale.log()))
    assert (found.log_density <= found.peak[:, None]).all()


def test_samples_differ_and_follow_their_generator(network):
    x = torch.randn(1, 1, 8, 8).expand(2, -1, -1, -1)
    one = network.sample(x, 4, torch.Generator().manual_seed(0))
    again = network.sample(x, 4, torch.Generator().manual_seed(0))
    other = network.sample(x, 4, torch.Generator().manual_seed(1))
    assert torch.equal(one.logits, again.logits)
    assert not torch.equal(one.logits, other.logits)
    z = one.z.flatten(0, 1)  # also those of two inputs that are alike
    assert (torch.cdist(z, z) + torch.eye(8) > 1e-3).all()
    assert (one.logits[:, 1:] - one.logits[:, :1]).abs().amax(dim=(2, 3, 4)).min() > 1e-6


def test_latents_are_sampled_from_the_prior(network):
    """10,000 samples: their mean is within 5 / 100 deviations of the prior's, or thereabouts."""
    x = torch.randn(1, 1, 4, 4)
    prior, z = network.prior(x), network.sample(x, 10_000, torch.Generator().manual_seed(0)).z[0]
    noise = (z - prior.loc) / prior.scale
    torch.testing.assert_close(noise.mean(dim=0), torch.zeros(3), atol=0.05, rtol=0)
    torch.testing.assert_close(noise.std(dim=0), torch.ones(3), atol=0.05, rtol=0)


def test_a_proposal_has_k_answers_of_probability_one_in_k_and_no_code(network):
    x = torch.randn(2, 1, 8, 8)
    found = network.propose(x, 5, generator=torch.Generator().manual_seed(3))
    assert torch.equal(found.logits, network.sample(x, 5, torch.Generator().manual_seed(3)).logits)
    assert torch.equal(found.prob, torch.full((2, 5), 1 / 5))
    assert torch.equal(found.code, torch.full((2, 5), -1))
    assert network.max_answers is None
