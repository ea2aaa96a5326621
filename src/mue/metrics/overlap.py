"""How much two masks have in common."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def iou_distance(
    a: Bool[Tensor, "*b m c h w"], b: Bool[Tensor, "*b n c h w"]
) -> Float[Tensor, "*b m n"]:
    """1 - IoU of every pair, the mean over the classes that are present in either mask.

    Two empty masks agree: their distance is 0. One empty, one not: 1.

    >>> mask = torch.tensor([[[[True, True], [False, False]]]])
    >>> iou_distance(mask, ~mask), iou_distance(mask, mask)
    (tensor([[1.]]), tensor([[0.]]))
    """
    a_, b_ = (t.flatten(-2).transpose(-3, -2).float() for t in (a, b))  # *b c m hw
    both = a_ @ b_.mT
    either = a_.sum(dim=-1).unsqueeze(-1) + b_.sum(dim=-1).unsqueeze(-2) - both
    distance = torch.where(either > 0, 1 - both / either.clamp_min(1), 0.0)
    present = (either > 0).sum(dim=-3)
    return distance.sum(dim=-3) / present.clamp_min(1)
