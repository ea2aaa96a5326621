"""Answers that are grouped."""

from collections.abc import Callable

import pytest
import torch

from mue.types import Hypotheses

Answers = Callable[..., Hypotheses]


@pytest.fixture(scope="session")
def answers() -> Answers:
    """Makes the answers to one input of their probabilities and values, a number each."""

    def make(prob: list[float], y: list[float]) -> Hypotheses:
        return Hypotheses(
            torch.tensor([y])[..., None], torch.tensor([prob]), 10 + torch.arange(len(prob))[None]
        )

    return make


@pytest.fixture(scope="session")
def random_masks() -> Answers:
    """Makes answers that are near a few kinds of masks, with some empty ones among them."""

    def make(b: int, k: int, seed: int = 0) -> Hypotheses:
        g = torch.Generator().manual_seed(seed)
        kinds = torch.rand(5, 1, 6, 6, generator=g).round()
        kinds[0] = 0
        y = kinds[torch.randint(5, (b, k), generator=g)]
        y = torch.where(torch.rand(y.shape, generator=g) < 0.08, 1 - y, y)
        prob = (
            (0.9 * torch.randn(b, k, generator=g).softmax(dim=1))
            .sort(dim=1, descending=True)
            .values
        )
        return Hypotheses(y, prob, torch.arange(k).expand(b, k))

    return make
