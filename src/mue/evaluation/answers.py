"""What every evaluation shares: the answers to the items of a data set, and the codes in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.data.source import Source
from mue.inference.predictor import MIN_PROB, Predictor
from mue.types import Case, Hypotheses

Progress = Callable[[int, int], None]
"""Called with the number of items that are done, and of all."""
MAX_ANSWERS = 64
"""Answers that are decoded for an input with several raters, at most."""
GROUPED = 100
"""Answers that modes are formed of, at most: the most probable, or the first samples."""
IN_USE = 0.01
"""A code counts as in use when it is more probable than this for some input."""


def propose_all(
    predictor: Predictor,
    source: Source,
    count: int,
    k: int,
    *,
    batch: int,
    seed: int = 0,
    min_prob: float = MIN_PROB,
    progress: Progress | None = None,
) -> Iterator[tuple[Case, Hypotheses]]:
    """The first `count` items of a data set, batch by batch, with k answers to each.

    `seed` is of the samples of a model that samples.
    """
    generator = torch.Generator().manual_seed(seed)
    for index in torch.arange(count, device=predictor.device).split(batch):
        case = source.case(index)
        yield case, predictor.propose(case.x, k, min_prob=min_prob, generator=generator)
        if progress is not None:
            progress(int(index[-1]) + 1, count)


def codes_in_use(n: int, code: Int[Tensor, "*a"], prob: Float[Tensor, "*a"]) -> int:
    """How many of n codes are in use, from the code and the probability of each answer."""
    highest = torch.zeros(n + 1)  # the last entry is of answers without a code, which is -1
    highest.scatter_reduce_(0, code.flatten() % (n + 1), prob.flatten(), "amax")
    return int((highest[:-1] > IN_USE).sum())
