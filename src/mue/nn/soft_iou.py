"""IoU of probability maps: smooth, so that gradients follow it."""

import torch
from jaxtyping import Float
from torch import Tensor


def soft_iou(a: Float[Tensor, "b m p"], b: Float[Tensor, "b n p"]) -> Float[Tensor, "b m n"]:
    """(I + 1) / (U + 1) of every pair of flat probability maps, I the sum of their products."""
    both, either = _soft_overlap(a, b)
    return (both + 1) / (either + 1)


def soft_iou_distance(
    a: Float[Tensor, "b m *y"], b: Float[Tensor, "b n *y"]
) -> Float[Tensor, "b m n"]:
    """1 - `soft_iou` of every pair: the metrics' IoU distance, made smooth."""
    return 1 - soft_iou(a.flatten(2), b.flatten(2))


def soft_class_distance(
    a: Float[Tensor, "b m c h w"], b: Float[Tensor, "b n c h w"]
) -> Float[Tensor, "b m n"]:
    """The mean of `soft_iou_distance` over the classes present in either of two label maps.

    As in the metric, the first class, the background, does not count. How present a class is,
    U / (U + 1), is its weight in the mean.
    """
    both, either = _soft_overlap(*(t[:, :, 1:].transpose(1, 2).flatten(3) for t in (a, b)))
    presence = (either / (either + 1)).detach()
    each = 1 - (both + 1) / (either + 1)
    tiny = torch.finfo(each.dtype).tiny
    return (presence * each).sum(dim=1) / presence.sum(dim=1).clamp_min(tiny)


def _soft_overlap(
    a: Float[Tensor, "*b m p"], b: Float[Tensor, "*b n p"]
) -> tuple[Float[Tensor, "*b m n"], Float[Tensor, "*b m n"]]:
    """Intersection and union of every pair."""
    both = a @ b.mT
    return both, a.sum(dim=-1)[..., None] + b.sum(dim=-1)[..., None, :] - both
