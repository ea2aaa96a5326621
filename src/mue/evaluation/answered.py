"""One pass over a split: items of a data set, answered by a predictor, for all that judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from mue.data.random import check_seed
from mue.data.source import Source
from mue.evaluation.items import split_batches
from mue.inference.predictor import Predictor
from mue.models.modal import enough
from mue.modes import MIN_PROB
from mue.types import Case, Hypotheses

Progress = Callable[[int, int], None]
"""Called with the number of items that are done, and of all."""
MAX_ANSWERS = 64
"""Answers that are decoded for an input with several raters, at most."""
GROUPED = 100
"""Answers that modes are formed of, at most: the most probable, or the first samples."""


@dataclass(frozen=True, slots=True)
class Request:
    """Which items of a data set are to be answered, and how.

    Attributes:
        items: Their indices, ascending.
        k: How many answers there are to each, at most.
        min_prob: Answers less probable are not kept, except for the first.
        batch: How many items are answered at once, at most.
        seed: Of the samples of a model that samples.
    """

    items: Int[Tensor, " b"]
    k: int
    _: KW_ONLY
    min_prob: float = MIN_PROB
    batch: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """Items of a data set with what is known of them, and the answers of a model."""

    items: Int[Tensor, " b"]
    case: Case
    h: Hypotheses

    def part(self, items: Int[Tensor, " n"]) -> Answered | None:
        """Those that are among certain items, if there are any."""
        row, c, h = torch.isin(self.items, items).nonzero()[:, 0], self.case, self.h
        if not len(row):
            return None
        names, groups = (tuple(each[i] for i in row.tolist()) for each in (c.id, c.group))
        case = replace(c, x=c.x[row], ys=c.ys[row], q=c.q[row], id=names, group=groups)
        return Answered(self.items[row], case, Hypotheses(h.y[row], h.prob[row], h.code[row]))

    def answers(self, k: int, min_prob: float) -> Answered:
        """The same with fewer answers: those that `propose` gives for such a `k` and `min_prob`."""
        kept = enough(prob := self.h.prob[:, :k], min_prob)
        k = int(kept.sum(dim=1).amax())
        h = Hypotheses(self.h.y[:, :k], prob.where(kept, 0)[:, :k], self.h.code[:, :k])
        return replace(self, h=h)


@runtime_checkable
class Judge(Protocol):
    """What collects numbers of the answers to some items."""

    request: Request

    def add_(self, batch: Answered) -> None:
        """Add the numbers of some of these items."""
        ...


def answered(
    predictor: Predictor,
    source: Source,
    request: Request,
    *,
    also: Judge | None = None,
    progress: Progress | None = None,
) -> Iterator[Answered]:
    """The one pass over items of a data set: batch by batch, with the answers to each.

    `also` judges some of the same items: it is given its part of each batch, so that no item is
    answered twice. It has a pass of its own where its answers would be others: of a model that
    samples, whose samples depend on all those before, or whose probabilities depend on `k`.
    """
    if also is None or not _share(predictor, request, also.request):
        yield from _pass(predictor, source, request, progress)
        if also is not None:
            for batch in _pass(predictor, source, also.request):
                also.add_(batch)
        return
    k, min_prob = also.request.k, also.request.min_prob
    most = replace(request, k=max(request.k, k), min_prob=min(request.min_prob, min_prob))
    for batch in _pass(predictor, source, most, progress):
        yield batch.answers(request.k, request.min_prob)
        if part := batch.part(also.request.items):
            also.add_(part.answers(k, min_prob))


def _share(predictor: Predictor, request: Request, other: Request) -> bool:
    """Whether the items of another request are among these, and fewer answers are the first."""
    ranked = predictor.codes > 0 or (not predictor.is_sampler and other.k == request.k)
    return ranked and bool(torch.isin(other.items, request.items).all())


def _pass(
    predictor: Predictor, source: Source, request: Request, progress: Progress | None = None
) -> Iterator[Answered]:
    check_seed(request.seed)
    generator, done = torch.Generator().manual_seed(request.seed), 0
    for items in split_batches(source, request.items, request.batch):
        case = source.case(items)
        h = predictor.propose(
            case.x,
            request.k,
            min_prob=request.min_prob,
            generator=generator,
            normalized=True,
        )
        yield Answered(items, case, h)
        done += len(items)
        if progress is not None:
            progress(done, len(request.items))
