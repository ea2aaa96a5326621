"""The interface of a data set."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from mue.types import Case, Pair


@runtime_checkable
class Source(Protocol):
    """A map-style data set that is asked for whole batches.

    Training asks for pairs of increasing index without end, so `pair` must accept any index from 0
    on and give the same item for the same index, whatever the batch and the process: a random
    choice is made from (seed, index) by `mue.data.random`. A finite data set of n items takes
    `index % n`, or a random item. Evaluation asks for the cases it needs; a data set of finite
    length has `__len__` too.
    """

    device: torch.device
    """Where the tensors of a batch are. `index` may come from any device."""
    on_device: bool
    """Whether `pair` computes from tensors on `device` alone, without a file or a copy from the
    host. Then a batch is generated as part of the training step, on a GPU inside its CUDA graph.
    If False, a thread prefetches the next batch while the step runs, which always works: nothing
    else reads the data in the meantime."""

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        """Inputs x (b c h w, or b c), each with r sampled answers y (b r c h w): training."""
        ...

    def case(self, index: Int[Tensor, " b"]) -> Case:
        """Inputs, each with all of its answers and their probabilities: evaluation."""
        ...


@runtime_checkable
class SeveralSizes(Protocol):
    """A finite data set of images of several sizes, of which those of one size can be a batch.

    Images of one size follow one another.
    """

    sizes: list[tuple[int, int]]
    """Height and width of each image."""
