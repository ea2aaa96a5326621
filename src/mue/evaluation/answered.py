"""One pass over a split: items of a data set, answered by a predictor, for all that judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from dataclasses import KW_ONLY, dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.config.schema import ObjectiveConfig
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import Prepared
from mue.data.prepared.splits import Split
from mue.data.random import check_seed
from mue.data.source import SeveralSizes, Source
from mue.errors import MueError
from mue.inference.predictor import Predictor
from mue.metrics.energy import Distances
from mue.models.modal import enough, in_use
from mue.modes import MIN_PROB
from mue.objective import log_likelihood
from mue.types import Case, Hypotheses

Progress = Callable[[int, int], None]
"""Called with the number of items that are done, and of all."""
MAX_ANSWERS = 64
"""Answers that are decoded for an input with several raters, at most."""
GROUPED = 100
"""Answers that modes are formed of, at most: the most probable, or the first samples."""
_MAX_INPUTS = 10**9
_MAX_PIXELS = 1 << 20  # of a batch, as 64 slices of 128 x 128 have
_TINY = 1e-6  # a pixel is at least this uncertain, or one wrong pixel decides the likelihood


def check_inputs(inputs: int) -> None:
    """Refuse a number of inputs that none can be generated of, or no loop could count."""
    if not 1 <= inputs <= _MAX_INPUTS:
        raise MueError(f"`inputs` must be in 1..{_MAX_INPUTS}, got {inputs}")


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


def split_of_data(predictor: Predictor, prepared: Prepared, split: Split) -> Slices:
    """A split of prepared data as a model takes it, read from its files as it is needed."""
    config, device = predictor.config.data, predictor.device
    return Slices(prepared, split, config, device=device, on_device=False)


def split_batches(
    source: Source, index: Int[Tensor, " b"], batch: int
) -> Iterator[Int[Tensor, " n"]]:
    """The items in parts of at most `batch`, images in parts of one size.

    Of large images there are fewer in a part, so that memory is bounded.
    """
    if not isinstance(source, SeveralSizes):
        yield from index.split(batch)
        return
    size = torch.tensor([source.sizes[i] for i in index.tolist()])
    sides, count = size.unique_consecutive(dim=0, return_counts=True)
    for (h, w), part in zip(sides.tolist(), index.split(count.tolist()), strict=True):
        yield from part.split(max(1, min(batch, _MAX_PIXELS // (h * w))))


def of_one_size(source: Source, index: Int[Tensor, " b"]) -> Int[Tensor, " n"]:
    """The items that have the size of the first one, and so can be a batch with it."""
    if not isinstance(source, SeveralSizes):
        return index
    size = [source.sizes[i] for i in index.tolist()]
    return index[torch.tensor([s == size[0] for s in size], device=index.device)]


def joint_distances(predictor: Predictor, h: Hypotheses, case: Case) -> Distances:
    """Distances of answers to known answers, of answers, and of known answers, in one pass."""
    k, y = h.y.shape[1], torch.cat([h.y, case.ys], dim=1)
    d = predictor.distance(y, y)
    return Distances(d[:, :k, k:], d[:, :k, :k], d[:, k:, k:])


def codes_in_use(n: int, code: Int[Tensor, "*a"], prob: Float[Tensor, "*a"]) -> int:
    """How many of n codes are in use, from the code and the probability of each answer."""
    highest = torch.zeros(n + 1)  # the last entry is of answers without a code, which is -1
    highest.scatter_reduce_(0, code.flatten() % (n + 1), prob.flatten(), "amax")
    return int(in_use(highest[:-1]).sum())


def spaced_items(source: Source, inputs: int) -> Int[Tensor, " b"]:
    """Items at equal distances in a finite data set, at most `inputs`; the first of an endless one.

    The slices of a patient follow one another, so these are of as many patients as possible.
    """
    total = len(source) if isinstance(source, Sized) else inputs
    count = min(inputs, total)
    return torch.arange(count, device=source.device) * total // count


def answer_log_likelihood(
    h: Hypotheses, ys: Float[Tensor, "b m *y"], config: ObjectiveConfig
) -> Float[Tensor, "b k m"]:
    """Log p(y | k, x) of known answers under every answer, summed over pixels.

    Probabilities of pixels stay within 1e-6 of 0 and 1.
    """
    kind, y = config.likelihood, h.y
    if kind != "normal":
        y = y.logit(_TINY) if kind == "bernoulli" else y.clamp_min(_TINY).log()
    return log_likelihood(y, ys, kind, config.deviation)
