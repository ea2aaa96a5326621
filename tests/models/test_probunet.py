import math

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from mue.config.schema import Config, LatentConfig, ModelConfig
from mue.models.build import build_network
from mue.models.probunet import Gaussian, ProbUNet


@pytest.fixture
def network() -> ProbUNet:
    torch.manual_seed(0)
    model = ModelConfig(
        levels=(4, 6), tail=(), widths=(4,), code_level=3, join="concatenate", readout=3
    )
    made = build_network(Config(method="probunet", model=model, latent=LatentConfig(width=3)))
    assert isinstance(made, ProbUNet)
    return made.requires_grad_(False).eval()


def some(*shape: int) -> Gaussian:
    return Gaussian(torch.randn(*shape), 0.5 * torch.randn(*shape))


def theirs(one: Gaussian) -> Independent:
    return Independent(Normal(one.mean, one.log_std.exp()), 1)


# --- Gaussians ------------------------------------------------------------------------------------


def test_the_divergence_by_hand():
    """KL(N(1, 2²) || N(0, 1)) = (4 + 1 - 1) / 2 - ln 2, twice for two axes."""
    one = Gaussian(torch.ones(1, 2), torch.full((1, 2), math.log(2)))
    other = Gaussian(torch.zeros(1, 2), torch.zeros(1, 2))
    expected = 2 * (2 - math.log(2))
    torch.testing.assert_close(one.divergence(other), torch.tensor([expected]))
    torch.testing.assert_close(one.divergence(one), torch.zeros(1))


def test_the_log_density_by_hand():
    """Of N(1, 2²) two deviations from its mean: -2 - ln 2 - ln(2 pi) / 2."""
    one = Gaussian(torch.ones(1, 1), torch.full((1, 1), math.log(2)))
    expected = -2 - math.log(2) - 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(one.log_density(torch.tensor([[5.0]])), torch.tensor([expected]))


def test_divergence_and_density_are_those_of_torch_distributions():
    torch.manual_seed(0)
    one, other, z = some(5, 4), some(5, 4), torch.randn(5, 4)
    torch.testing.assert_close(one.divergence(other), kl_divergence(theirs(one), theirs(other)))
    torch.testing.assert_close(one.log_density(z), theirs(one).log_prob(z))


def test_noise_becomes_points_by_the_mean_and_the_deviation():
    one = Gaussian(torch.tensor([[1.0, -1.0]]), torch.tensor([[0.0, math.log(3)]]))
    torch.testing.assert_close(one.at(torch.tensor([[2.0, 2.0]])), torch.tensor([[3.0, 5.0]]))


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
        torch.testing.assert_close(found.log_density[:, i], prior.log_density(found.z[:, i]))
    torch.testing.assert_close(found.peak, prior.log_density(prior.mean))
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


def test_latents_are_drawn_from_the_prior(network):
    """10,000 draws: their mean is within 5 / 100 deviations of the prior's, or thereabouts."""
    x = torch.randn(1, 1, 4, 4)
    prior, z = network.prior(x), network.sample(x, 10_000, torch.Generator().manual_seed(0)).z[0]
    noise = (z - prior.mean) / prior.log_std.exp()
    torch.testing.assert_close(noise.mean(dim=0), torch.zeros(3), atol=0.05, rtol=0)
    torch.testing.assert_close(noise.std(dim=0), torch.ones(3), atol=0.05, rtol=0)


def test_a_proposal_has_k_answers_of_probability_one_in_k_and_no_code(network):
    x = torch.randn(2, 1, 8, 8)
    found = network.propose(x, 5, generator=torch.Generator().manual_seed(3))
    assert torch.equal(found.logits, network.sample(x, 5, torch.Generator().manual_seed(3)).logits)
    assert torch.equal(found.prob, torch.full((2, 5), 1 / 5))
    assert torch.equal(found.code, torch.full((2, 5), -1))
    assert network.max_answers is None
