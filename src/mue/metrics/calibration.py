"""Whether a lesion that is predicted with probability p is there that often."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from mue.errors import MueError
from mue.metrics import door
from mue.metrics.door import Array


def presence(
    s: Shaped[Array, "b k *c h w"], p: Shaped[Array, "b k"] | None = None
) -> Float[Tensor, " b"]:
    """Predicted probability that the mask is not empty, of any class.

    >>> s = torch.tensor([[[[[True, False]]], [[[False, False]]]]])
    >>> presence(s, torch.tensor([[0.75, 0.25]]))
    tensor([0.7500])
    """
    (answers,) = door.masks(s=s)
    return _not_empty(answers, door.weights("p", p, answers))


def annotated(
    ys: Shaped[Array, "b r *c h w"], q: Shaped[Array, "b r"] | None = None
) -> Float[Tensor, " b"]:
    """Share of the raters who annotated something: the truth that `presence` is held against.

    >>> ys = torch.tensor([[[[[True, False]]], [[[False, False]]]]])
    >>> annotated(ys, torch.tensor([[0.5, 0.5]]))
    tensor([0.5000])
    """
    (raters,) = door.masks(ys=ys)
    return _not_empty(raters, door.weights("q", q, raters))


def _not_empty(s: Bool[Tensor, "b k c h w"], p: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
    """The weight of the masks that are not empty."""
    return (s.flatten(2).any(dim=2) * p).sum(dim=1)


def brier(p: Shaped[Array, " b"], share: Shaped[Array, " b"]) -> Float[Tensor, " b"]:
    """Squared gap of prediction and share.

    The share of the raters stands for the truth. The Brier score against one rater sampled
    at random is this plus share (1 - share), which no prediction can change.

    >>> brier(torch.tensor([0.5]), torch.tensor([0.75]))
    tensor([0.0625])
    """
    p, share = door.shares(p=p, share=share)
    return (p - share).square()


@dataclass(frozen=True, slots=True)
class Reliability:
    """Inputs, mean prediction and mean share of raters in each of equal bins of [0, 1].

    The means are NaN where a bin is empty.
    """

    count: Int[Tensor, " bins"]
    predicted: Float[Tensor, " bins"]
    share: Float[Tensor, " bins"]


def reliability(p: Shaped[Array, " b"], share: Shaped[Array, " b"], bins: int = 15) -> Reliability:
    """Sort the inputs into bins by their prediction.

    Bin i holds i / bins <= p < (i + 1) / bins, and the last one p = 1 as well.

    >>> r = reliability(torch.tensor([0.1, 0.3, 0.9]), torch.tensor([0.0, 0.5, 1.0]), bins=2)
    >>> r.count, r.predicted, r.share
    (tensor([2, 1]), tensor([0.2000, 0.9000]), tensor([0.2500, 1.0000]))
    """
    if bins < 1:
        raise MueError(f"`bins` must be at least 1, got {bins}")
    p, share = door.shares(p=p, share=share)
    bin_of = (p * bins).long().clamp(0, bins - 1)
    member = bin_of[:, None] == torch.arange(bins, device=p.device)
    count, weight = member.sum(dim=0), member.to(p.dtype)
    return Reliability(count, p @ weight / count, share @ weight / count)


def ece(p: Shaped[Array, " b"], share: Shaped[Array, " b"], bins: int = 15) -> Float[Tensor, ""]:
    """Expected calibration error: how far prediction and share differ in an average bin.

        ECE = sum_i count_i |predicted_i - share_i| / sum_i count_i

    >>> ece(torch.tensor([0.1, 0.3, 0.9]), torch.tensor([0.0, 0.5, 1.0]), bins=2)
    tensor(0.0667)
    """
    r = reliability(p, share, bins)
    return (r.count * (r.predicted - r.share).abs()).nansum() / r.count.sum()
