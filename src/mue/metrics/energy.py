"""How far the predicted distribution of answers is from that of the raters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mue.errors import MueError
from mue.metrics import door
from mue.metrics.door import Array
from mue.metrics.overlap import joint_iou


def energy_distance(
    sy: Float[Tensor, "b k r"],
    ss: Float[Tensor, "b k k"],
    yy: Float[Tensor, "b r r"],
    p: Float[Tensor, "b k"],
    q: Float[Tensor, "b r"],
) -> Float[Tensor, " b"]:
    """Energy distance of two weighted sets (appendix `ged`), from the distances of their members.

        D^2 = 2 E[d(S, Y)] - E[d(S, S')] - E[d(Y, Y')]

    with S, S' sampled from p and Y, Y' from q. The first term asks for answers that are right; the
    second rewards answers that differ, as much as the raters do.

    >>> far = torch.ones(1, 1, 1)
    >>> one = torch.ones(1, 1)
    >>> energy_distance(far, 0 * far, 0 * far, one, one)
    tensor([2.])
    """
    return 2 * _mean(sy, p, q) - _mean(ss, p, p) - _mean(yy, q, q)


@dataclass(frozen=True, slots=True)
class Distances:
    """1 - IoU of answers and raters (sy), and of either among themselves (ss, yy)."""

    sy: Float[Tensor, "b k r"]
    ss: Float[Tensor, "b k2 k2"]
    yy: Float[Tensor, "b r r"]

    def top(self, k: int) -> Distances:
        """Those of the first k answers."""
        return Distances(self.sy[:, :k], self.ss[:, :k, :k], self.yy)

    def energy(self, p: Float[Tensor, "b k"], q: Float[Tensor, "b r"]) -> Float[Tensor, " b"]:
        """The energy distance of answers and raters, weighted by p and q."""
        return energy_distance(self.sy, self.ss, self.yy, p, q)


def distances(s: Shaped[Array, "b k *c h w"], ys: Shaped[Array, "b r *c h w"]) -> Distances:
    """All that an energy distance needs, from one pass over the pixels.

    >>> mask = torch.tensor([[[[[True, True], [False, False]]]]])
    >>> distances(mask, ~mask).sy
    tensor([[[1.]]])
    """
    s, ys = door.masks(s=s, ys=ys)
    k, d = s.shape[1], 1 - joint_iou(s, ys)
    return Distances(d[:, :k, k:], d[:, :k, :k], d[:, k:, k:])


def ged(
    s: Shaped[Array, "b k *c h w"],
    p: Shaped[Array, "b k"] | None,
    ys: Shaped[Array, "b r *c h w"],
    q: Shaped[Array, "b r"] | None = None,
) -> Float[Tensor, " b"]:
    """Energy distance of hypotheses and raters, both weighted, where d = 1 - IoU.

    It is the expectation itself, free of the noise and of the bias of sampled hypotheses. Never
    compare it with somebody's `ged_16`.

    >>> mask = torch.tensor([[[[[True, True], [False, False]]]]])
    >>> ys = torch.cat([mask, ~mask], dim=1)
    >>> ged(mask, torch.ones(1, 1), ys, torch.tensor([[0.5, 0.5]]))
    tensor([0.5000])
    """
    s, p, ys, q = door.weighted(s, p, ys, q)
    return distances(s, ys).energy(p, q)


def sample_indices(
    p: Float[Tensor, "b k"], n: int, generator: torch.Generator
) -> Int[Tensor, "b n"]:
    """Sample n of the k hypotheses of each input with replacement, by their probability.

    `p` need not sum to 1. Sampling is on the generator's device, so that one seed gives the same
    samples whatever the device of `p`.

    >>> sample_indices(torch.tensor([[0.0, 0.3]]), 4, torch.Generator())
    tensor([[1, 1, 1, 1]])
    """
    if n < 1:
        raise MueError(f"`n`, the number of samples, must be at least 1, got {n}")
    pick = torch.multinomial(p.to(generator.device), n, replacement=True, generator=generator)
    return pick.to(p.device)


def empirical(pick: Int[Tensor, "b n"], k: int) -> Float[Tensor, "b k"]:
    """Share of the samples that are each of k hypotheses.

    >>> empirical(torch.tensor([[2, 0, 2, 2]]), 3)
    tensor([[0.2500, 0.0000, 0.7500]])
    """
    count = torch.zeros(len(pick), k, device=pick.device)
    return count.scatter_add_(1, pick, torch.ones_like(pick, dtype=count.dtype)) / pick.shape[1]


def ged_n(
    s: Shaped[Array, "b k *c h w"],
    p: Shaped[Array, "b k"] | None,
    ys: Shaped[Array, "b r *c h w"],
    q: Shaped[Array, "b r"] | None,
    n: int,
    generator: torch.Generator,
) -> Float[Tensor, " b"]:
    """The literature's GED: n hypotheses sampled from p, each with weight 1/n.

    Pairs of a sample with itself are included, which makes E[d(S, S')] too small by a share of 1/n:

        E[ged_n] = ged + E[d(S, S')] / n

    >>> mask = torch.tensor([[[[[True, True], [False, False]]]]])
    >>> one = torch.ones(1, 1)
    >>> ged_n(mask, one, ~mask, one, 16, torch.Generator())
    tensor([2.])
    """
    s, p, ys, q = door.weighted(s, p, ys, q)
    return sampled_energy_distance(distances(s, ys), p, q, n, generator)


def sampled_energy_distance(
    d: Distances,
    p: Float[Tensor, "b k"],
    q: Float[Tensor, "b r"],
    n: int,
    generator: torch.Generator,
) -> Float[Tensor, " b"]:
    """`ged_n` from distances; `p` need not sum to 1.

    The samples are among k answers, so their shares take the place of p and nothing is copied.
    """
    return d.energy(empirical(sample_indices(p, n, generator), p.shape[1]), q)


def rater_disagreement(yy: Float[Tensor, "b r r"], q: Float[Tensor, "b r"]) -> Float[Tensor, " b"]:
    """Mean distance D of two different raters, an unbiased estimate of that of any two.

        D = sum_ij q_i q_j d_ij / (1 - sum_i q_i^2)

    It is not a number where there is one rater alone.

    >>> far = torch.tensor([[[0.0, 0.6], [0.6, 0.0]]])
    >>> rater_disagreement(far, torch.tensor([[0.5, 0.5]]))
    tensor([0.6000])
    """
    several = (q > 0).sum(dim=1) > 1
    pairs = (1 - q.square().sum(dim=1)).where(several, torch.nan)
    return _mean(yy, q, q) / pairs


def best_ged(
    disagreement: Float[Tensor, " b"], q: Float[Tensor, "b r"], samples: int | None = None
) -> Float[Tensor, " b"]:
    """Expected `ged` (or `ged_n`) of a model that knows exactly how raters answer.

    The raters at hand are independent samples of that distribution, of which any two differ by D:

        ged = 2 D - D - (1 - sum_i q_i^2) D = D sum_i q_i^2        D / r for r equal raters
        ged_n = D (sum_i q_i^2 + 1 / n)

    >>> best_ged(torch.tensor([0.52]), torch.full((1, 4), 0.25))
    tensor([0.1300])
    """
    return disagreement * (q.square().sum(dim=1) + (1 / samples if samples else 0))


def _mean(
    d: Float[Tensor, "b k r"], p: Float[Tensor, "b k"], q: Float[Tensor, "b r"]
) -> Float[Tensor, " b"]:
    """p.d.q: the mean of d where one side is sampled from p and the other from q."""
    return (p.unsqueeze(2) * d * q.unsqueeze(1)).sum(dim=(1, 2))
