"""The answers to a volume, each of one code through all of its slices."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from mue.inference.forward import require_memory
from mue.types import Hypotheses


def volume_answers(
    slices: Float[Tensor, "d c h w"],
    answer: Callable[[Float[Tensor, "1 c h w"]], Hypotheses],
    on_slice: Callable[[int], None],
) -> Hypotheses:
    """The answers to the slices of a volume as answers to the volume, stacked along the height.

        p(c | volume) = sum_s w_s p(c | x_s),  w_s ~ sum of e (1 - e) over the pixels of slice s

    where e is the expected mask of a slice. The mean keeps shares of raters what they are, and no
    single slice can rule out a code, as it could in a product. The weight leaves the choice to the
    slices in which the answers differ: in the others it does not matter. `answer` gives the same
    codes in the same order for each slice, or members, heads or samples by the same random numbers.
    """
    (d, _, h, w), first = slices.shape, answer(slices[:1])
    shape = (1, *first.y.shape[1:3], d * h, w)
    require_memory(2 * math.prod(shape), f"the answers to {d} slices", slices.device)
    y = torch.empty(shape, dtype=torch.float16, device=slices.device)
    probs, weights = list[Tensor](), list[Tensor]()
    for i, x in enumerate(slices.split(1)):
        found = answer(x) if i else first
        y[..., i * h : (i + 1) * h, :] = found.y
        share = (found.prob / found.prob.sum()).to(found.y.dtype)
        expected = torch.einsum("bk,bk...->b...", share, found.y).float()
        weights.append((expected * (1 - expected)).clamp_min(0).sum())
        probs.append(found.prob[0])
        on_slice(i + 1)
    weight = torch.stack(weights).double()
    weight = weight / weight.sum() if weight.sum() > 0 else torch.full_like(weight, 1 / d)
    prob = (weight[:, None] * torch.stack(probs).double()).sum(dim=0).float()
    order = prob.argsort(descending=True, stable=True)
    _reorder_(y, order.tolist())
    return Hypotheses.unchecked(y, prob[None, order], first.code[:, order])


def _reorder_(y: Float[Tensor, "1 k *y"], order: list[int]) -> None:
    """Put answers into an order in place: a second copy of a volume's may not fit into memory."""
    placed = set[int]()
    for start in range(len(order)):
        first, at = y[:, start].clone() if start not in placed else None, start
        while at not in placed:
            placed.add(at)
            after = order[at]
            y[:, at] = first if after == start and first is not None else y[:, after]
            at = after
