"""What changes from step to step: learning rate, weights of the terms, random seed."""

import dataclasses
import math
from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor

from mue.config.schema import Config
from mue.objective import Weights
from mue.runtime import collectives
from mue.training.batches import first_item


def learning_rate(config: Config, step: int) -> float:
    """The learning rate of the step after `step` steps."""
    t = config.train
    done = step / t.steps
    warmup = min(1.0, (step + 1) / (t.warmup + 1))
    if t.schedule == "cosine":
        return t.lr * warmup * (1 + math.cos(math.pi * done)) / 2
    passed = [f for at, f in zip(t.milestones, t.factors, strict=True) if done >= at]
    return t.lr * warmup * (passed[-1] if passed else 1.0)


def weights_at(config: Config, step: int) -> Weights:
    """The weight of each term after `step` steps."""
    o, done = config.objective, step / config.train.steps
    left = max(0.0, 1 - done / o.balance_until) if o.balance_until > 0 else 0.0
    prior = float(done >= o.prior_from)
    if config.method == "probunet" and o.prior_from > 0:  # at once, the latent would collapse
        prior = min(1.0, done / o.prior_from)
    return Weights(prior, o.temperature**left, balance=left > 0, best=config.latent.heads > 1)


class StepScalars:
    """The values of the current step as scalars on the device, where a step reads them.

    `first` is the index of the first item of this process's share of the batch; `ema_decay` makes
    the EMA of the weights a mean over all steps at first, then over the last.
    """

    def __init__(self, config: Config, device: torch.device, lr: Tensor) -> None:
        self._config, self._lr = config, lr
        self.first = torch.zeros((), dtype=torch.long, device=device)
        self._prior, self._temperature, self.ema_decay = (
            torch.zeros((), device=device) for _ in range(3)
        )

    def set_(self, step: int) -> Weights:
        """Set them for the step after `step` steps; returns the weights of the terms."""
        config, weights = self._config, weights_at(self._config, step)
        self.first.fill_(first_item(config, step))
        self._lr.fill_(learning_rate(config, step))
        self._prior.fill_(weights.prior)
        self._temperature.fill_(weights.temperature)
        self.ema_decay.fill_(min(config.train.ema, (step + 1) / (step + 11)))
        return dataclasses.replace(weights, prior=self._prior, temperature=self._temperature)


@contextmanager
def seeded(config: Config, step: int, device: torch.device) -> Generator[None]:
    """Latents and dropout of a step depend on (seed, step, process) alone.

    The caller's random state is left as it was.
    """
    if not config.stochastic:
        yield
        return
    seed = config.train.seed * 1_000_003 + step * 4099 + collectives.rank()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed % (1 << 63))
        yield
