"""How good the answers are once each is paired with one rater."""

import math

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor

from mue.errors import MueError
from mue.metrics import door
from mue.metrics.door import Array
from mue.metrics.energy import sample_indices
from mue.metrics.overlap import iou


def hm_iou(
    overlap: Shaped[Array, "b n r"], q: Shaped[Array, "b r"] | None = None
) -> Float[Tensor, " b"]:
    """Mean IoU of n answers and r raters under the pairing that makes it largest.

    Both sides are repeated to the least common multiple of n and r, so that the pairing is one to
    one and each answer, like each rater, counts equally. Of their weights q it matters only which
    are 0: these raters are left out.

    >>> hm_iou(torch.tensor([[[0.9, 0.8], [0.7, 0.1]]]))     # (0.8 + 0.7) / 2, not (0.9 + 0.1) / 2
    tensor([0.7500])
    """
    (overlap,) = door.tables(overlap=(overlap, "b n r"))
    if not (overlap >= 0).all():
        raise MueError("`overlap` must be the IoU of every answer and rater, at least 0")
    present = door.weights("q", q, overlap.mT)
    tables = zip(overlap.double().cpu().numpy(), (present > 0).cpu().numpy(), strict=True)
    return overlap.new_tensor([_matched(table[:, there]) for table, there in tables])


def _matched(overlap: NDArray[np.float64]) -> float:
    from scipy.optimize import linear_sum_assignment  # pyright: ignore  # slow to import

    n, r = overlap.shape
    size = math.lcm(n, r)
    square = overlap.repeat(size // n, axis=0).repeat(size // r, axis=1)
    return square[linear_sum_assignment(square, maximize=True)].mean()


def hm_iou_n(
    s: Shaped[Array, "b k *c h w"],
    p: Shaped[Array, "b k"] | None,
    ys: Shaped[Array, "b r *c h w"],
    n: int,
    generator: torch.Generator,
    q: Shaped[Array, "b r"] | None = None,
) -> Float[Tensor, " b"]:
    """Hungarian-matched IoU of n hypotheses sampled from p, as the literature reports it.

    Two empty masks have an IoU of 1. Each rater counts once, whatever their weight q elsewhere,
    unless it is 0.

    >>> mask = torch.tensor([[[[[True, True], [False, False]]]]])
    >>> hm_iou_n(mask, torch.ones(1, 1), torch.cat([mask, ~mask], dim=1), 16, torch.Generator())
    tensor([0.5000])
    """
    s, p, ys, q = door.weighted(s, p, ys, q)
    return sampled_hm_iou(iou(s, ys), p, q, n, generator)


def sampled_hm_iou(
    overlap: Float[Tensor, "b k r"],
    p: Float[Tensor, "b k"],
    q: Float[Tensor, "b r"],
    n: int,
    generator: torch.Generator,
) -> Float[Tensor, " b"]:
    """`hm_iou_n` from the IoU of every answer and rater; `p` need not sum to 1."""
    pick = sample_indices(p, n, generator)
    rows = torch.arange(len(pick), device=pick.device)[:, None]
    return hm_iou(overlap[rows, pick], q)
