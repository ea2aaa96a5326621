import inspect
import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from typing_extensions import get_protocol_members

from mue.config.presets import preset
from mue.config.schema import CodebookConfig, Config, LatentConfig, ModelConfig
from mue.models.build import build_learner
from mue.models.learner import ExactLearner, Learner, VqLearner
from mue.models.network import Network
from mue.models.probunet import LatentLearner


def tiny(method) -> VqLearner | ExactLearner:
    torch.manual_seed(0)
    model = ModelConfig(levels=(4, 4), tail=(6,), widths=(4,))
    made = build_learner(
        Config(method=method, model=model, codebook=CodebookConfig(size=5, width=3, decay=0.5))
    )
    assert isinstance(made, VqLearner | ExactLearner)
    return made


@pytest.fixture
def vq() -> VqLearner:
    learner = tiny("vq")
    assert isinstance(learner, VqLearner)
    return learner


@pytest.fixture
def xy():
    torch.manual_seed(1)
    return torch.randn(3, 1, 6, 6), torch.rand(3, 2, 1, 6, 6).round()


def changed(learner: nn.Module, action) -> set[str]:
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    action()
    after = learner.state_dict()
    return {name for name in before if not torch.equal(before[name], after[name])}


# --- vq -------------------------------------------------------------------------------------------


def test_each_answer_is_decoded_from_the_code_nearest_its_encoding(vq, xy):
    """Against one answer of one input at a time."""
    x, y = xy
    vq.start_(x, y, torch.randn(5, 3))  # so that the choice is a close one
    trace, codes = vq(x, y), vq.network.codebook.codes
    for i in range(3):
        view = vq.network(x[i : i + 1])
        torch.testing.assert_close(trace.log_prior[i], view.log_prior[0])
        for j in range(2):
            e = vq.posterior(x[i : i + 1], y[i : i + 1, j : j + 1])[0, 0]
            gaps = (codes - e).square().sum(dim=1)
            nearest = int(gaps.argmin())
            torch.testing.assert_close(trace.encoding[i, j], e)
            assert trace.index[i, j] == nearest
            torch.testing.assert_close(trace.distance[i, j], gaps[nearest])
            answer = vq.network.decode(view, codes[None, nearest : nearest + 1])[0, 0]
            torch.testing.assert_close(trace.logits[i, j], answer)


def test_the_decoder_teaches_the_posterior_encoder_straight_through_the_code(vq, xy):
    vq(*xy).logits.square().sum().backward()
    assert vq.posterior.project.weight.grad.abs().sum() > 0
    assert vq.network.codebook.codes.grad is None


def test_forward_only_reads_and_settling_moves_only_the_code_book(vq, xy):
    assert changed(vq, lambda: vq(*xy)) == set()
    trace = vq(*xy)
    moved = {"network.codebook.codes", "posterior.usage.count"}
    assert changed(vq, lambda: vq.settle_(trace)) == moved


def test_with_decay_one_half_a_settled_code_is_the_mean_of_itself_and_its_encodings(vq, xy):
    before, trace = vq.network.codebook.codes.clone(), vq(*xy)
    vq.settle_(trace)
    for i in range(5):  # g = 1 - g, and every count starts at 1
        mine = torch.cat([before[i : i + 1], trace.encoding[trace.index == i]])
        torch.testing.assert_close(vq.network.codebook.codes[i], mine.mean(dim=0))


def test_the_code_book_starts_with_the_mean_and_deviation_of_the_encodings(vq, xy):
    e = vq.posterior(*xy).flatten(0, 1)
    normal = torch.tensor([[0.0], [1.0], [-1.0], [2.0], [0.5]]).expand(5, 3)
    assert changed(vq, lambda: vq.start_(*xy, normal)) == {"network.codebook.codes"}
    torch.testing.assert_close(vq.network.codebook.codes[0], e.mean(dim=0))
    torch.testing.assert_close(vq.network.codebook.codes[3], e.mean(dim=0) + 2 * e.std(dim=0))


# --- exact ----------------------------------------------------------------------------------------


def test_exact_decodes_every_code_whatever_the_answers(xy):
    learner, (x, y) = tiny("exact"), xy
    trace, other = learner(x, y), learner(x, 1 - y)
    assert torch.equal(trace.logits, other.logits)
    view, codes = learner.network(x), learner.network.codebook.codes
    for i in range(5):
        one = learner.network.decode(view, codes[i].expand(3, 1, 3))
        torch.testing.assert_close(trace.logits[:, i : i + 1], one)


def test_exact_has_nothing_to_settle_and_its_codes_have_a_gradient(xy):
    learner = tiny("exact")
    trace = learner(*xy)
    assert changed(learner, lambda: learner.settle_(trace)) == set()
    trace.logits.square().sum().backward()
    gradient = learner.network.codebook.codes.grad
    assert gradient is not None
    assert (gradient.abs().sum(dim=1) > 0).all()


# --- a Gaussian latent ----------------------------------------------------------------------------


@pytest.fixture
def latent() -> LatentLearner:
    torch.manual_seed(0)
    model = ModelConfig(levels=(4, 4), tail=(), widths=(4,), code_level=3, readout=3)
    made = build_learner(Config(method="probunet", model=model, latent=LatentConfig(width=3)))
    assert isinstance(made, LatentLearner)
    return made


def divergence(p: Normal, q: Normal) -> Tensor:
    """KL(p || q) of normal distributions with independent axes, in nats, written out."""
    ratio, gap = (p.scale / q.scale).square(), ((p.loc - q.loc) / q.scale).square()
    return (0.5 * (ratio + gap - 1) + q.scale.log() - p.scale.log()).sum(dim=-1)


def test_the_divergence_by_hand():
    """KL(N(1, 2²) || N(0, 1)) = (4 + 1 - 1) / 2 - ln 2, twice for two axes."""
    one, other = Normal(torch.ones(1, 2), 2.0), Normal(torch.zeros(1, 2), 1.0)
    expected = 2 * (2 - math.log(2))
    torch.testing.assert_close(divergence(one, other), torch.tensor([expected]))
    torch.testing.assert_close(divergence(one, one), torch.zeros(1))


def test_each_answer_is_decoded_from_a_sample_of_its_own_posterior(latent, xy):
    """Against one answer of one input at a time, with the same noise."""
    x, y = xy
    torch.manual_seed(5)
    trace = latent(x, y)
    torch.manual_seed(5)
    noise = torch.randn(3, 2, 3)
    for i in range(3):
        prior = latent.network.prior(x[i : i + 1])
        features = latent.network.encoder(x[i : i + 1])
        for j in range(2):
            posterior = latent.posterior(torch.cat([x[i], y[i, j]])[None])
            z = posterior.loc + posterior.scale * noise[i, j][None]
            logits = latent.network.decode(features, z[:, None])[0, 0]
            torch.testing.assert_close(trace.logits[i, j], logits)
            torch.testing.assert_close(trace.divergence[i, j], divergence(posterior, prior)[0])


def test_a_step_of_a_gaussian_latent_teaches_prior_and_posterior_and_settles_nothing(latent, xy):
    trace = latent(*xy)
    assert changed(latent, lambda: latent.settle_(trace)) == set()
    (trace.logits.square().sum() + trace.divergence.sum()).backward()
    for part in (latent.posterior, latent.network.prior, latent.network.encoder):
        assert sum(p.grad.abs().sum() for p in part.parameters() if p.grad is not None) > 0
    assert latent.network.prior.encoder is not latent.network.encoder


@pytest.mark.parametrize("name", ["toy", "toy-vq", "toy-probunet", "toy-ensemble"])
def test_a_learner_is_recognized_as_one_by_every_python(name: str):
    """Since Python 3.12 a protocol is checked by `inspect.getattr_static`: no submodules."""
    learner = build_learner(preset(name))
    for value, protocol in ((learner, Learner), (learner.network, Network)):
        for member in get_protocol_members(protocol):
            inspect.getattr_static(value, member)
