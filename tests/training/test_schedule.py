import pytest
import torch

from mue.config.schema import (
    Config,
    ObjectiveConfig,
    TrainConfig,
)
from mue.training.schedule import StepScalars, learning_rate, weights_at


def test_the_papers_learning_rates_begin_at_the_papers_iterations():
    train = TrainConfig(
        steps=150_000, lr=1e-4, milestones=(0.2, 0.6, 0.8), factors=(0.5, 0.1, 0.05)
    )
    config = Config(train=train)
    begins = [(0, 1e-4), (30_000, 5e-5), (90_000, 1e-5), (120_000, 5e-6)]
    for (begin, lr), (end, _) in zip(begins, [*begins[1:], (150_000, 0)], strict=True):
        assert learning_rate(config, begin) == pytest.approx(lr)
        assert learning_rate(config, end - 1) == pytest.approx(lr)


def test_the_learning_rate_is_warmed_up_linearly():
    config = Config(train=TrainConfig(steps=1000, lr=1.0, warmup=3))
    rates = [learning_rate(config, step) for step in range(5)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1])


def test_half_a_cosine_ends_at_zero():
    config = Config(train=TrainConfig(steps=100, lr=2.0, schedule="cosine"))
    rates = [learning_rate(config, step) for step in (0, 50, 100)]
    assert rates == pytest.approx([2, 1, 0])


def test_the_prior_waits_until_its_share_of_the_training_is_over():
    config = Config(objective=ObjectiveConfig(prior_from=0.25), train=TrainConfig(steps=100))
    assert [weights_at(config, step).prior for step in (0, 24, 25, 99)] == [0, 0, 1, 1]


def test_responsibilities_harden_and_balancing_ends_together():
    objective = ObjectiveConfig(temperature=16.0, balance_until=0.5)
    config = Config(objective=objective, train=TrainConfig(steps=100))
    moments = [weights_at(config, step) for step in (0, 25, 50, 99)]
    assert [m.temperature for m in moments] == pytest.approx([16, 4, 1, 1])  # geometric
    assert [m.balance for m in moments] == [True, True, False, False]


def test_the_scalars_of_a_step_are_those_of_its_schedule(tiny):
    """The EMA is a mean over all steps at first, of which this one counts 10 / (s + 10)."""
    config, lr = tiny("exact", ema=0.9, warmup=3, lr=1.0), torch.zeros(())
    scalars = StepScalars(config, torch.device("cpu"), lr)
    seen = []
    for step in (0, 2, 11, 200):
        scalars.set_(step)
        seen.append((int(scalars.first), float(lr), float(scalars.ema_decay)))
    assert seen[0] == (0, pytest.approx(1 / 4), pytest.approx(1 / 11))
    assert seen[1] == (16, pytest.approx(3 / 4), pytest.approx(3 / 13))
    assert [decay for _, _, decay in seen[2:]] == pytest.approx([12 / 22, 0.9])
