import dataclasses

import pytest
import torch
from torch import nn

from mue.config.schema import Config, LatentConfig, ModelConfig, ObjectiveConfig
from mue.models.build import build_learner, build_network
from mue.models.heads import Heads, HeadsLearner
from mue.objective import Weights, objective

CONFIG, WEIGHTS = ObjectiveConfig(), Weights(prior=1.0, temperature=1.0, balance=False)
MODEL = ModelConfig(levels=(4, 6), tail=(), widths=(4,))


def config(dropout: float = 0.0, **latent: int) -> Config:
    model = dataclasses.replace(MODEL, dropout=dropout)
    return Config(method="heads", model=model, latent=LatentConfig(**latent))


def heads(dropout: float = 0.0, **latent: int) -> Heads:
    torch.manual_seed(0)
    made = build_network(config(dropout, **latent))
    assert isinstance(made, Heads)
    return made.requires_grad_(False).eval()


def learner(**latent: int) -> HeadsLearner:
    torch.manual_seed(0)
    made = build_learner(config(**latent))
    assert isinstance(made, HeadsLearner)
    return made


@pytest.fixture
def xy():
    torch.manual_seed(1)
    return torch.randn(3, 1, 8, 8), torch.rand(3, 1, 1, 8, 8).round()


# --- answers --------------------------------------------------------------------------------------


def test_a_deterministic_network_has_one_answer(xy):
    network = heads()
    assert (network.max_answers, network.forward_passes(1)) == (1, 1)
    found = network.propose(xy[0], 1)
    assert torch.equal(found.prob, torch.ones(3, 1))
    assert torch.equal(found.logits, network.propose(xy[0], 1).logits)


@pytest.mark.parametrize("latent", [{"members": 3}, {"heads": 3}])
def test_the_answers_of_members_and_heads_differ_and_are_equally_probable(xy, latent):
    network = heads(**latent)
    assert (network.max_answers, network.forward_passes(3)) == (3, latent.get("members", 1))
    found = network.propose(xy[0], 3)
    assert torch.equal(found.prob, torch.full((3, 3), 1 / 3))
    assert torch.equal(found.code, torch.full((3, 3), -1))
    flat = found.logits.flatten(2)
    assert (torch.cdist(flat, flat) + torch.eye(3) > 1e-3).all()
    two = network.propose(xy[0], 2)  # fewer are the first of them, and share the probability
    assert torch.equal(two.logits, found.logits[:, :2])
    assert torch.equal(two.prob, torch.full((3, 2), 1 / 2))


def test_an_ensemble_is_its_members_each_alone(xy):
    network = heads(members=3)
    for i, member in enumerate(network.members):
        torch.testing.assert_close(network(xy[0])[:, i : i + 1], member(xy[0]))


# --- dropout --------------------------------------------------------------------------------------


def test_samples_of_dropout_differ_and_follow_their_seed(xy):
    network = heads(dropout=0.5)
    assert (network.max_answers, network.forward_passes(7)) == (None, 7)
    one, again, other = (
        network.propose(xy[0], 4, generator=torch.Generator().manual_seed(seed)).logits
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert (one[:, 1:] - one[:, :1]).abs().amax(dim=(2, 3, 4)).min() > 1e-6


def test_an_advanced_generator_gives_other_samples(xy):
    network, generator = heads(dropout=0.5), torch.Generator().manual_seed(0)
    first, second = (network.propose(xy[0], 2, generator=generator).logits for _ in range(2))
    assert not torch.equal(first, second)


def test_proposing_leaves_the_global_random_numbers_alone(xy):
    network, before = heads(dropout=0.5), torch.get_rng_state()
    network.propose(xy[0], 3, generator=torch.Generator().manual_seed(0))
    network.propose(xy[0], 3)
    assert torch.equal(torch.get_rng_state(), before)


# --- what each learns -----------------------------------------------------------------------------


def gradients(parts: list[nn.Module] | nn.ModuleList) -> list[float]:
    """The size of the gradient of each part."""
    return [
        sum(float(p.grad.abs().sum()) for p in part.parameters() if p.grad is not None)
        for part in parts
    ]


def test_members_of_an_ensemble_learn_independently(xy):
    """The gradient of one's answer touches nobody else; together each learns as if alone."""
    ensemble = learner(members=3)
    ensemble(*xy).logits[:, 1].sum().backward()
    first, second, third = gradients(ensemble.network.members)
    assert (first, third) == (0, 0)
    assert second > 0
    ensemble.zero_grad()
    objective(ensemble(*xy), xy[1], CONFIG, WEIGHTS).total.backward()
    together = [p.grad for p in ensemble.network.members[0].parameters()]
    ensemble.zero_grad(set_to_none=True)
    alone = ensemble.network.members[0](xy[0])
    terms = objective(type(ensemble(*xy))(alone), xy[1], CONFIG, WEIGHTS)
    terms.total.backward()
    for mine, theirs in zip(together, ensemble.network.members[0].parameters(), strict=True):
        assert mine is not None
        torch.testing.assert_close(3 * mine, theirs.grad)  # the mean of three


def test_of_several_heads_only_the_best_learns_from_an_answer(xy):
    many, best = learner(heads=3), dataclasses.replace(WEIGHTS, best=True)
    trace = many(*xy)
    trace.logits.retain_grad()
    objective(trace, xy[1], CONFIG, best).total.backward()
    fit = -nn.functional.binary_cross_entropy_with_logits(
        trace.logits, xy[1].expand(-1, 3, -1, -1, -1), reduction="none"
    ).sum(dim=(2, 3, 4))
    touched = trace.logits.grad.abs().sum(dim=(2, 3, 4)) > 0
    assert torch.equal(touched, fit == fit.amax(dim=1, keepdim=True))


def test_heads_only_read_and_have_nothing_to_settle(xy):
    many = learner(heads=2)
    before = {name: value.clone() for name, value in many.state_dict().items()}
    trace = many(*xy)
    assert torch.equal(trace.logits, many(xy[0], 1 - xy[1]).logits)  # whatever the answers
    many.settle_(trace)
    assert all(torch.equal(value, before[name]) for name, value in many.state_dict().items())
