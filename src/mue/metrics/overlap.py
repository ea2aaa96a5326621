"""How much two masks have in common.

Two conventions hold for every score here. Two empty masks agree: 1. With several classes the score
is the mean over the classes that are present in either mask.
"""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from mue.errors import MueError
from mue.metrics import door
from mue.metrics.door import Array
from mue.metrics.pixels import common_pixels
from mue.metrics.ranked import AT_LEAST, covered_share


def joint_iou(*sets: Bool[Tensor, "*b _ c h w"]) -> Float[Tensor, "*b j j"]:
    """IoU of every pair of the j masks of all sets together, in the order of the sets.

    One pass over the pixels gives every block that an energy distance needs.

    >>> mask = torch.tensor([[[[True, True], [False, False]]]])
    >>> joint_iou(mask, ~mask)
    tensor([[1., 0.],
            [0., 1.]])
    """
    both = common_pixels(*sets)
    area = both.diagonal(dim1=-2, dim2=-1)
    return _mean_over_present(both / (area.unsqueeze(-1) + area.unsqueeze(-2) - both))


def iou(a: Shaped[Array, "b k *c h w"], b: Shaped[Array, "b r *c h w"]) -> Float[Tensor, "b k r"]:
    """|A and B| / |A or B| of every pair.

    >>> mask = torch.tensor([[[[True, True], [False, False]]]])
    >>> iou(mask, torch.ones_like(mask))
    tensor([[[0.5000]]])
    """
    if a is b:
        return joint_iou(*door.masks(a=a))
    first, other = door.masks(a=a, b=b)
    k = first.shape[1]
    return joint_iou(first, other)[:, :k, k:]


def iou_distance(
    a: Shaped[Array, "b k *c h w"], b: Shaped[Array, "b r *c h w"]
) -> Float[Tensor, "b k r"]:
    """1 - IoU of every pair: 0 for two empty masks, 1 where one of them is empty.

    >>> mask = torch.tensor([[[[True, True], [False, False]]]])
    >>> iou_distance(mask, ~mask), iou_distance(mask, mask)
    (tensor([[[1.]]]), tensor([[[0.]]]))
    """
    return 1 - iou(a, b)


def dice(a: Shaped[Array, "b k *c h w"], b: Shaped[Array, "b r *c h w"]) -> Float[Tensor, "b k r"]:
    """2 |A and B| / (|A| + |B|) of every pair.

    >>> mask = torch.tensor([[[[True, True], [False, False]]]])
    >>> dice(mask, torch.ones_like(mask))
    tensor([[[0.6667]]])
    """
    first, other = door.masks(a=a, b=b)
    k = first.shape[1]
    both = common_pixels(first, other)
    area = both.diagonal(dim1=-2, dim2=-1)
    ratio = 2 * both / (area.unsqueeze(-1) + area.unsqueeze(-2))
    return _mean_over_present(ratio)[:, :k, k:]


def top_dice(
    s: Shaped[Array, "b k *c h w"],
    ys: Shaped[Array, "b r *c h w"],
    q: Shaped[Array, "b r"] | None = None,
) -> Float[Tensor, " b"]:
    """Dice of the first, the most probable answer with the raters, weighted by q.

    It is what one would report of a model that gives a single answer.

    >>> mask = torch.tensor([[[[[True, True], [False, False]]]]])
    >>> top_dice(mask, torch.cat([mask, ~mask], dim=1), torch.tensor([[0.75, 0.25]]))
    tensor([0.7500])
    """
    s, ys = door.masks(s=s, ys=ys)
    return (dice(s[:, :1], ys)[:, 0] * door.weights("q", q, ys)).sum(dim=1)


def coverage_k(
    s: Shaped[Array, "b k *c h w"],
    ys: Shaped[Array, "b r *c h w"],
    q: Shaped[Array, "b r"] | None,
    k: int,
    at_least: float = AT_LEAST,
) -> Float[Tensor, " b"]:
    """Weighted share of raters who find their answer among the first k.

    A rater does if some of the first k answers has an IoU of at least `at_least` with theirs. A
    rater who annotated nothing needs an empty answer.

    >>> mask = torch.tensor([[[[[True, True], [False, False]]]]])
    >>> s = torch.cat([mask, ~mask], dim=1)
    >>> coverage_k(s, s, torch.tensor([[0.75, 0.25]]), k=1)
    tensor([0.7500])
    """
    s, ys = door.masks(s=s, ys=ys)
    if not 1 <= k <= s.shape[1]:
        raise MueError(f"`k` must be in 1..{s.shape[1]} (the answers at hand), got {k}")
    return covered_share(iou(s[:, :k], ys), door.weights("q", q, ys), at_least)


def _mean_over_present(ratio: Float[Tensor, "*b c j j"]) -> Float[Tensor, "*b j j"]:
    """The mean over classes; a class absent from both masks is 0 / 0 and leaves it alone."""
    return torch.nanmean(ratio, dim=-3).nan_to_num(nan=1.0)
