"""How good the answers are once each is paired with one rater."""

import math

import torch
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment  # pyright: ignore
from torch import Tensor

from mue.metrics import overlap
from mue.metrics.energy import sample_indices


def hm_iou(iou: Float[Tensor, "b n m"]) -> Float[Tensor, " b"]:
    """Mean IoU of n answers and m raters under the pairing that makes it largest.

    Both sides are repeated to the least common multiple of n and m, so that the pairing is one to
    one and each answer, like each rater, counts equally: raters have no weights here.

    >>> hm_iou(torch.tensor([[[0.9, 0.8], [0.7, 0.1]]]))     # (0.8 + 0.7) / 2, not (0.9 + 0.1) / 2
    tensor([0.7500])
    """
    n, m = iou.shape[1:]
    size = math.lcm(n, m)
    square = iou.repeat_interleave(size // n, dim=1).repeat_interleave(size // m, dim=2)
    matched = [
        matrix[linear_sum_assignment(matrix, maximize=True)].mean()
        for matrix in square.double().cpu().numpy()
    ]
    return iou.new_tensor(matched)


def hm_iou_n(
    s: Bool[Tensor, "b k c h w"],
    p: Float[Tensor, "b k"],
    ys: Bool[Tensor, "b m c h w"],
    n: int,
    generator: torch.Generator,
) -> Float[Tensor, " b"]:
    """Hungarian-matched IoU of n hypotheses sampled from p, as the literature reports it.

    Two empty masks have an IoU of 1. Each rater counts once, whatever their weight elsewhere.

    >>> mask = torch.tensor([[[[[True, True], [False, False]]]]])
    >>> hm_iou_n(mask, torch.ones(1, 1), torch.cat([mask, ~mask], dim=1), 16, torch.Generator())
    tensor([0.5000])
    """
    pick = sample_indices(p, n, generator)
    rows = torch.arange(len(pick), device=pick.device)[:, None]
    return hm_iou(overlap.iou(s, ys)[rows, pick])
