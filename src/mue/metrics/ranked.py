"""Whether the modes that are ranked first are those of the raters.

Answers are in modes, `mode` says in which (-1: in none). A rater is in the mode of the answer that
overlaps most with theirs, if it does by `at_least` (IoU); otherwise in none.
"""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from mue.metrics import door
from mue.metrics.door import Array

AT_LEAST = 0.5
"""IoU from which on an answer is that of a rater."""


def rater_modes(
    iou: Shaped[Array, "b k r"], mode: Shaped[Array, "b k"], at_least: float = AT_LEAST
) -> Int[Tensor, "b r"]:
    """The mode of each rater, or -1.

    >>> rater_modes(torch.tensor([[[0.7, 0.1], [0.6, 0.2]]]), torch.tensor([[1, 0]]))
    tensor([[ 1, -1]])
    """
    iou, mode = door.tables(iou=(iou, "b k r"), mode=(mode, "b k"))
    best, answer = iou.where(mode[..., None] >= 0, -torch.inf).max(dim=1)
    return mode.gather(1, answer).where(best >= at_least, -1)


def covered_share(
    iou: Shaped[Array, "b k r"], q: Shaped[Array, "b r"] | None, at_least: float = AT_LEAST
) -> Float[Tensor, " b"]:
    """Share of the raters whose mask one of the answers has an IoU of `at_least` with.

    >>> covered_share(torch.tensor([[[0.7, 0.1], [0.6, 0.2]]]), torch.tensor([[0.75, 0.25]]))
    tensor([0.7500])
    """
    (iou,) = door.tables(iou=(iou, "b k r"))
    q = door.weights("q", q, iou.mT)
    return ((iou >= at_least).any(dim=1) * q).sum(dim=1)


def outside_share(
    rater_mode: Shaped[Array, "b r"], q: Shaped[Array, "b r"] | None = None
) -> Float[Tensor, " b"]:
    """Share of the raters who are in no mode.

    >>> outside_share(torch.tensor([[1, -1]]), torch.tensor([[0.75, 0.25]]))
    tensor([0.2500])
    """
    (rater_mode,) = door.tables(rater_mode=(rater_mode, "b r"))
    q = door.weights("q", q, rater_mode)
    return ((rater_mode < 0) * q).sum(dim=1)


def mode_shares(
    rater_mode: Shaped[Array, "b r"], q: Shaped[Array, "b r"] | None, m: int
) -> Float[Tensor, "b m"]:
    """Share of the raters who are in each of m modes.

    >>> mode_shares(torch.tensor([[1, -1, 1]]), torch.tensor([[0.25, 0.25, 0.5]]), 2)
    tensor([[0.0000, 0.7500]])
    """
    (rater_mode,) = door.tables(rater_mode=(rater_mode, "b r"))
    q = door.weights("q", q, rater_mode)
    member = rater_mode[:, :, None] == torch.arange(m, device=q.device)
    return (member * q[:, :, None]).sum(dim=1)


def probability_before(prob: Float[Tensor, "b m"]) -> Float[Tensor, "b m"]:
    """Probability of the modes ranked before each mode."""
    return prob.cumsum(dim=1) - prob


def up_to(prob: Float[Tensor, "b m"], limit: float) -> Bool[Tensor, "b m"]:
    """The modes before which at most `limit` of the probability is ranked: always the first.

    >>> up_to(torch.tensor([[0.6, 0.3, 0.1]]), 0.7)
    tensor([[ True,  True, False]])
    """
    return (probability_before(prob) <= limit) & (prob > 0)


def modes_for(prob: Shaped[Array, "b m"], share: float) -> Int[Tensor, " b"]:
    """How many modes, the most probable first, hold a share of the probability.

    >>> modes_for(torch.tensor([[0.6, 0.3, 0.1]]), 0.9)
    tensor([2])
    """
    (prob,) = door.subdistributions(prob=prob)
    return ((probability_before(prob) < share - 1e-6) & (prob > 0)).sum(dim=1)


def ranked_before(
    iou: Shaped[Array, "b k r"],
    mode: Shaped[Array, "b k"],
    prob: Shaped[Array, "b m"],
    at_least: float = AT_LEAST,
) -> Float[Tensor, "b r"]:
    """Probability of the modes ranked before the first that has a member like the rater's answer.

    It is how far down a ranking a rater must read. Infinite where no answer is theirs.

    >>> iou, prob = torch.tensor([[[0.7, 0.1, 0.2], [0.2, 0.6, 0.2]]]), torch.tensor([[0.8, 0.2]])
    >>> ranked_before(iou, torch.tensor([[0, 1]]), prob)
    tensor([[0.0000, 0.8000,    inf]])
    """
    iou, mode, prob = door.tables(iou=(iou, "b k r"), mode=(mode, "b k"), prob=(prob, "b m"))
    of_answer = probability_before(prob).gather(1, mode.clamp_min(0)).where(mode >= 0, torch.inf)
    return of_answer[..., None].where(iou >= at_least, torch.inf).amin(dim=1)
