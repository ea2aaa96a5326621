"""Whether the probabilities are right, where the truth is a known set of modes."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mue.metrics import door
from mue.metrics.door import Array


def nearest_mode(
    s: Shaped[Array, "b k *y"],
    ys: Shaped[Array, "b m *y"],
    q: Shaped[Array, "b m"] | None = None,
) -> Int[Tensor, "b k"]:
    """Which true answer each proposed answer is closest to, in the l2 distance.

    Where their probabilities q are given, those of probability 0 are left out.

    >>> nearest_mode(torch.tensor([[[0.9], [0.2]]]), torch.tensor([[[0.0], [1.0]]]))
    tensor([[1, 0]])
    """
    answers, modes = door.vectors(s=s, ys=ys)
    # of |s - y|^2 = |s|^2 - 2 s.y + |y|^2, the first is the same for all
    both = torch.matmul(answers, modes.mT)
    distance = modes.square().sum(dim=2)[:, None] - 2 * both
    if q is not None:
        weight = door.weights("q", q, modes)
        distance = distance.masked_fill((weight <= 0)[:, None], torch.inf)
    return distance.argmin(dim=2)


def distinct(distance: Float[Tensor, "b m m"], q: Float[Tensor, "b m"]) -> Float[Tensor, "b m"]:
    """Probabilities of the true answers where equal ones, at distance 0, are one.

    The first of them has the sum, the others 0.

    >>> equal = torch.tensor([[[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]])
    >>> distinct(equal, torch.tensor([[0.5, 0.25, 0.25]]))
    tensor([[0.7500, 0.0000, 0.2500]])
    """
    first = ((distance == 0) & (q > 0)[:, None]).int().argmax(dim=2)
    return torch.zeros_like(q).scatter_add_(1, first, q)


def mode_probabilities(
    s: Shaped[Array, "b k *y"],
    p: Shaped[Array, "b k"],
    ys: Shaped[Array, "b m *y"],
    q: Shaped[Array, "b m"] | None = None,
) -> Float[Tensor, "b m"]:
    """Probability that the answers give to each true mode: each answer counts for its nearest.

    Modes of probability 0, where q is given, are left out.

    >>> s, ys = torch.tensor([[[0.9], [0.2], [1.1]]]), torch.tensor([[[0.0], [1.0]]])
    >>> mode_probabilities(s, torch.tensor([[0.5, 0.3, 0.2]]), ys)
    tensor([[0.3000, 0.7000]])
    """
    nearest, (prob,) = nearest_mode(s, ys, q), door.subdistributions(p=p)
    nearest, prob = door.tables(nearest=(nearest, "b k"), p=(prob, "b k"))
    return prob.new_zeros(ys.shape[:2]).scatter_add_(1, nearest, prob)


def mode_tv(p: Shaped[Array, "b m"], q: Shaped[Array, "b m"]) -> Float[Tensor, " b"]:
    """Total variation distance of predicted and true mode probabilities.

        TV = (sum_m |p_m - q_m| + (1 - sum_m p_m)) / 2

    The last term is the mass left to answers that were not decoded: it is on no true mode, so it
    counts as wrong. A ranking cannot look better by being cut short.

    >>> mode_tv(torch.tensor([[0.5, 0.4]]), torch.tensor([[0.6, 0.4]]))
    tensor([0.1000])
    """
    p, q = door.subdistributions(p=p, q=q)
    missing = (1 - p.sum(dim=1)).clamp_min(0)
    return ((p - q).abs().sum(dim=1) + missing) / 2


def mode_mae(p: Shaped[Array, "b m"], q: Shaped[Array, "b m"]) -> Float[Tensor, " b"]:
    """Mean absolute error of the mode probabilities.

    >>> mode_mae(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.6, 0.4]]))
    tensor([0.1000])
    """
    p, q = door.subdistributions(p=p, q=q)
    return (p - q).abs().mean(dim=1)


def entropy(prob: Shaped[Array, "b m"]) -> Float[Tensor, " b"]:
    """Entropy in nats; what the probabilities lack to 1 counts as one more answer.

    >>> entropy(torch.tensor([[0.5, 0.5], [0.5, 0.0]]))
    tensor([0.6931, 0.6931])
    """
    (prob,) = door.subdistributions(prob=prob)
    rest = (1 - prob.sum(dim=1, keepdim=True)).clamp_min(0)
    p = torch.cat([prob, rest], dim=1)
    return -torch.xlogy(p, p).sum(dim=1)
