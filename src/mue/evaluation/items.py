"""Which items of a data set are judged, and how many of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch
from jaxtyping import Int
from torch import Tensor

from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import Prepared
from mue.data.prepared.splits import Split
from mue.data.source import SeveralSizes, Source
from mue.errors import MueError
from mue.inference.predictor import Predictor

_MAX_INPUTS = 10**9
_MAX_PIXELS = 1 << 20  # of a batch, as 64 slices of 128 x 128 have


def check_inputs(inputs: int) -> None:
    """Refuse a number of inputs that none can be generated of, or no loop could count."""
    if not 1 <= inputs <= _MAX_INPUTS:
        raise MueError(f"`inputs` must be in 1..{_MAX_INPUTS}, got {inputs}")


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


def spaced_items(source: Source, inputs: int) -> Int[Tensor, " b"]:
    """Items at equal distances in a finite data set, at most `inputs`; the first of an endless one.

    The slices of a patient follow one another, so these are of as many patients as possible.
    """
    total = len(source) if isinstance(source, Sized) else inputs
    count = min(inputs, total)
    return torch.arange(count, device=source.device) * total // count
