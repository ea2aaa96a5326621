"""Whether a lesion that is predicted with probability p is there that often."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mue.errors import MueError


def presence(s: Bool[Tensor, "b k c h w"], p: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
    """Predicted probability that the mask is not empty, of any class.

    `p` is taken as it is: normalise it first where hypotheses were left out.

    >>> s = torch.tensor([[[[[True, False]]], [[[False, False]]]]])
    >>> presence(s, torch.tensor([[0.75, 0.25]]))
    tensor([0.7500])
    """
    return (s.flatten(2).any(dim=2) * p).sum(dim=1)


def annotated(ys: Bool[Tensor, "b m c h w"], q: Float[Tensor, "b m"]) -> Float[Tensor, " b"]:
    """Share of the raters who annotated something: the truth that `presence` is held against.

    >>> ys = torch.tensor([[[[[True, False]]], [[[False, False]]]]])
    >>> annotated(ys, torch.tensor([[0.5, 0.5]]))
    tensor([0.5000])
    """
    return presence(ys, q)


def brier(p: Float[Tensor, " b"], share: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """Squared gap of prediction and share.

    The share of the raters stands for the truth. The Brier score against one rater sampled
    at random is this plus share (1 - share), which no prediction can change.

    >>> brier(torch.tensor([0.5]), torch.tensor([0.75]))
    tensor([0.0625])
    """
    return (p - share).square()


@dataclass(frozen=True, slots=True)
class Reliability:
    """Inputs, mean prediction and mean share of raters in each of equal bins of [0, 1].

    The means are NaN where a bin is empty.
    """

    count: Int[Tensor, " bins"]
    predicted: Float[Tensor, " bins"]
    share: Float[Tensor, " bins"]


def reliability(p: Float[Tensor, " b"], share: Float[Tensor, " b"], bins: int = 15) -> Reliability:
    """Sort the inputs into bins by their prediction.

    Bin i holds i / bins <= p < (i + 1) / bins, and the last one p = 1 as well.

    >>> r = reliability(torch.tensor([0.1, 0.3, 0.9]), torch.tensor([0.0, 0.5, 1.0]), bins=2)
    >>> r.count, r.predicted, r.share
    (tensor([2, 1]), tensor([0.2000, 0.9000]), tensor([0.2500, 1.0000]))
    """
    if bins < 1:
        raise MueError(f"`bins` must be at least 1, got {bins}")
    if not ((p >= -1e-4) & (p <= 1 + 1e-4)).all():
        raise MueError("`p` must be a probability, in [0, 1], for each input")
    bin_of = (p * bins).long().clamp(0, bins - 1)
    member = bin_of[:, None] == torch.arange(bins, device=p.device)
    count, weight = member.sum(dim=0), member.to(p.dtype)
    return Reliability(count, p @ weight / count, share @ weight / count)


def ece(p: Float[Tensor, " b"], share: Float[Tensor, " b"], bins: int = 15) -> Float[Tensor, ""]:
    """Expected calibration error: how far prediction and share differ in an average bin.

        ECE = sum_i count_i |predicted_i - share_i| / sum_i count_i

    >>> ece(torch.tensor([0.1, 0.3, 0.9]), torch.tensor([0.0, 0.5, 1.0]), bins=2)
    tensor(0.0667)
    """
    r = reliability(p, share, bins)
    return (r.count * (r.predicted - r.share).abs()).nansum() / r.count.sum()
