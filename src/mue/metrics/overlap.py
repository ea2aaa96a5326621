"""How much two masks have in common.

Two conventions hold for every score here. Two empty masks agree: 1. With several classes the score
is the mean over the classes that are present in either mask.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mue.errors import MueError
from mue.metrics.pixels import common_pixels


def joint_iou(*sets: Bool[Tensor, "*b _ c h w"]) -> Float[Tensor, "*b m m"]:
    """IoU of every pair of masks of all sets together, in the order of the sets.

    One pass over the pixels gives every block that an energy distance needs.

    >>> mask = torch.tensor([[[[True, True], [False, False]]]])
    >>> joint_iou(mask, ~mask)
    tensor([[1., 0.],
            [0., 1.]])
    """
    both = common_pixels(*sets)
    area = both.diagonal(dim1=-2, dim2=-1)
    return _mean_over_present(both / (area.unsqueeze(-1) + area.unsqueeze(-2) - both))


def iou(a: Bool[Tensor, "*b m c h w"], b: Bool[Tensor, "*b n c h w"]) -> Float[Tensor, "*b m n"]:
    """|A and B| / |A or B| of every pair.

    >>> mask = torch.tensor([[[[True, True], [False, False]]]])
    >>> iou(mask, torch.ones_like(mask))
    tensor([[0.5000]])
    """
    if a is b:
        return joint_iou(a)
    m = a.shape[-4]
    return joint_iou(a, b)[..., :m, m:]


def iou_distance(
    a: Bool[Tensor, "*b m c h w"], b: Bool[Tensor, "*b n c h w"]
) -> Float[Tensor, "*b m n"]:
    """1 - IoU of every pair: 0 for two empty masks, 1 where one of them is empty.

    >>> mask = torch.tensor([[[[True, True], [False, False]]]])
    >>> iou_distance(mask, ~mask), iou_distance(mask, mask)
    (tensor([[1.]]), tensor([[0.]]))
    """
    return 1 - iou(a, b)


def dice(a: Bool[Tensor, "*b m c h w"], b: Bool[Tensor, "*b n c h w"]) -> Float[Tensor, "*b m n"]:
    """2 |A and B| / (|A| + |B|) of every pair.

    >>> mask = torch.tensor([[[[True, True], [False, False]]]])
    >>> dice(mask, torch.ones_like(mask))
    tensor([[0.6667]])
    """
    m = a.shape[-4]
    both = common_pixels(a, b)
    area = both.diagonal(dim1=-2, dim2=-1)
    ratio = 2 * both / (area.unsqueeze(-1) + area.unsqueeze(-2))
    return _mean_over_present(ratio)[..., :m, m:]


def top_dice(
    s: Bool[Tensor, "b k c h w"], ys: Bool[Tensor, "b m c h w"], q: Float[Tensor, "b m"]
) -> Float[Tensor, " b"]:
    """Dice of the first, the most probable answer with the raters, weighted by q.

    It is what one would report of a model that gives a single answer.

    >>> mask = torch.tensor([[[[[True, True], [False, False]]]]])
    >>> top_dice(mask, torch.cat([mask, ~mask], dim=1), torch.tensor([[0.75, 0.25]]))
    tensor([0.7500])
    """
    return (dice(s[:, :1], ys)[:, 0] * q).sum(dim=1)


def coverage(
    s: Bool[Tensor, "b k c h w"],
    ys: Bool[Tensor, "b m c h w"],
    q: Float[Tensor, "b m"],
    k: int,
    at_least: float = 0.5,
) -> Float[Tensor, " b"]:
    """Weighted share of raters who find their answer among the first k.

    A rater does if some of the first k answers has an IoU of at least `at_least` with theirs. A
    rater who annotated nothing needs an empty answer.

    >>> mask = torch.tensor([[[[[True, True], [False, False]]]]])
    >>> s = torch.cat([mask, ~mask], dim=1)
    >>> coverage(s, s, torch.tensor([[0.75, 0.25]]), k=1)
    tensor([0.7500])
    """
    if not 1 <= k <= s.shape[1]:
        raise MueError(f"`k` must be in 1..{s.shape[1]} (the answers at hand), got {k}")
    found = (iou(s[:, :k], ys) >= at_least).any(dim=1)
    return (found * q).sum(dim=1)


def _mean_over_present(ratio: Float[Tensor, "*b c m n"]) -> Float[Tensor, "*b m n"]:
    """The mean over classes; a class absent from both masks is 0 / 0 and leaves it alone."""
    return torch.nanmean(ratio, dim=-3).nan_to_num(nan=1.0)
