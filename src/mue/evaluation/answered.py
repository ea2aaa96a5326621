"""What every evaluation shares: the answers to the items of a data set, and the codes in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.config.schema import ObjectiveConfig
from mue.data.prepared.dataset import Slices
from mue.data.prepared.splits import Split
from mue.data.prepared.store import Prepared
from mue.data.random import check_seed
from mue.data.source import SeveralSizes, Source
from mue.errors import MueError
from mue.inference.predictor import Predictor
from mue.modes import MIN_PROB
from mue.objective import log_likelihood
from mue.types import Case, Hypotheses

Progress = Callable[[int, int], None]
"""Called with the number of items that are done, and of all."""
MAX_ANSWERS = 64
"""Answers that are decoded for an input with several raters, at most."""
GROUPED = 100
"""Answers that modes are formed of, at most: the most probable, or the first samples."""
IN_USE = 0.01
"""A code counts as in use when it is more probable than this for some input."""
_MAX_INPUTS = 10**9
_MAX_PIXELS = 1 << 20  # of a batch, as 64 slices of 128 x 128 have
_TINY = 1e-6  # a pixel is at least this uncertain, or one wrong pixel decides the likelihood


def check_inputs(inputs: int) -> None:
    """Refuse a number of inputs that none can be generated of, or no loop could count."""
    if not 1 <= inputs <= _MAX_INPUTS:
        raise MueError(f"`inputs` must be in 1..{_MAX_INPUTS}, got {inputs}")


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
    check_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    for index in split_batches(source, torch.arange(count, device=predictor.device), batch):
        case = source.case(index)
        yield (
            case,
            predictor.propose(case.x, k, min_prob=min_prob, generator=generator, normalized=True),
        )
        if progress is not None:
            progress(int(index[-1]) + 1, count)


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


def joint_distances(
    predictor: Predictor, h: Hypotheses, case: Case
) -> tuple[Float[Tensor, "b k m"], Float[Tensor, "b k k"], Float[Tensor, "b m m"]]:
    """Distances of answers to known answers, of answers, and of known answers, in one pass."""
    k, y = h.y.shape[1], torch.cat([h.y, case.ys], dim=1)
    d = predictor.distance(y, y)
    return d[:, :k, k:], d[:, :k, :k], d[:, k:, k:]


def codes_in_use(n: int, code: Int[Tensor, "*a"], prob: Float[Tensor, "*a"]) -> int:
    """How many of n codes are in use, from the code and the probability of each answer."""
    highest = torch.zeros(n + 1)  # the last entry is of answers without a code, which is -1
    highest.scatter_reduce_(0, code.flatten() % (n + 1), prob.flatten(), "amax")
    return int((highest[:-1] > IN_USE).sum())


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
