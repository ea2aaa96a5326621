"""Modes: the groups of a tree that is cut at a level, ranked by their probability.

Axes as in `mue.types`: b batch, k answers, m modes, `*y` the axes of one answer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mue.errors import MueError
from mue.metrics.modes import entropy
from mue.metrics.ranked import up_to
from mue.modes.tree import Tree, ungrouped


@dataclass(frozen=True, slots=True)
class Modes:
    """The answers to a batch of inputs as modes, the most probable first.

    Inputs with fewer modes than others are filled up with copies of their first at probability 0.

    Attributes:
        y: The representative of each mode: its member of least expected distance to the others.
        prob: The sum of its members' probabilities.
        spread: Expected distance of a member to the representative.
        representative: Which answer that is.
        mode: The mode of each answer, or -1 where it is in none that is kept.
        answers: Every answer, the most probable first.
        answer_prob: Its probability.
        answer_code: Row of the code book behind it, or -1 for a model without codes.
        tree: How the answers are joined.
        cut: The level at which the tree is cut.
        coverage: The probability, promised by calibration, that the answer of a new rater is in
            one of these modes; None where nothing was promised.
    """

    y: Float[Tensor, "b m *y"]
    prob: Float[Tensor, "b m"]
    spread: Float[Tensor, "b m"]
    representative: Int[Tensor, "b m"]
    mode: Int[Tensor, "b k"]
    answers: Float[Tensor, "b k *y"]
    answer_prob: Float[Tensor, "b k"]
    answer_code: Int[Tensor, "b k"]
    tree: Tree
    cut: float
    coverage: float | None = None

    @property
    def rest(self) -> Float[Tensor, " b"]:
        """Probability of what is in none of these modes."""
        return (1 - self.prob.sum(dim=1)).clamp_min(0)

    @property
    def count(self) -> Int[Tensor, " b"]:
        """How many modes each input has."""
        return (self.prob > 0).sum(dim=1)

    @property
    def member(self) -> Bool[Tensor, "b k m"]:
        """Whether each answer is in each mode."""
        return self.mode[:, :, None] == torch.arange(self.prob.shape[1], device=self.mode.device)

    def mean(self) -> Float[Tensor, "b m *y"]:
        """The mean answer of each mode, its members weighted by their probability."""
        weight = self.member * self.answer_prob[:, :, None]
        total = weight.sum(dim=1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
        return torch.einsum(
            "bkm,bk...->bm...", (weight / total).to(self.answers.dtype), self.answers
        )

    def at(self, cut: float) -> Modes:
        """The modes of the same tree, cut at another level."""
        return modes_of(self.answers, self.answer_prob, self.answer_code, self.tree, cut)

    def by_code(self) -> Modes:
        """Each answer as a mode of its own."""
        tree = ungrouped(self.tree.distance)
        return modes_of(self.answers, self.answer_prob, self.answer_code, tree, self.cut)

    def first(self, limit: float, *, coverage: float | None = None) -> Modes:
        """The modes before which at most `limit` of the probability is ranked: always the first."""
        return replace(self._kept(up_to(self.prob, limit)), coverage=coverage)

    def top(self, k: int) -> Modes:
        """The k most probable modes."""
        if k < 1:
            raise MueError(f"`k` must be at least 1, got {k}")
        return self._kept(torch.arange(self.prob.shape[1], device=self.prob.device) < k)

    def _kept(self, shown: Tensor) -> Modes:
        shown = shown & (self.prob > 0)
        m = max(1, int(shown.sum(dim=1).amax()))
        return replace(
            self,
            y=self.y[:, :m],
            prob=self.prob.where(shown, 0)[:, :m],
            spread=self.spread[:, :m],
            representative=self.representative[:, :m],
            mode=self.mode.where((self.mode >= 0) & shown.gather(1, self.mode.clamp_min(0)), -1),
        )

    def entropy(self) -> Float[Tensor, " b"]:
        """Entropy of the modes in nats; `rest` counts as one more."""
        return entropy(self.prob)

    def cpu(self) -> Modes:
        """The same modes in the memory of the host."""
        return _on_host(replace(self, tree=_on_host(self.tree)))


Tensors = TypeVar("Tensors", Tree, Modes)


def _on_host(value: Tensors) -> Tensors:
    """A copy with every tensor in the memory of the host."""
    found = {field.name: getattr(value, field.name) for field in fields(value)}
    return replace(value, **{n: v.cpu() for n, v in found.items() if isinstance(v, Tensor)})


@dataclass(frozen=True, slots=True)
class Ranking:
    """The modes of a tree by their probability, as many as answers: the last are at probability 0.

    What stands in `Modes` under the same names, before it is known how many modes there are.
    """

    prob: Float[Tensor, "b k"]
    spread: Float[Tensor, "b k"]
    representative: Int[Tensor, "b k"]
    mode: Int[Tensor, "b k"]


def ranking(tree: Tree, prob: Float[Tensor, "b k"], cut: float) -> Ranking:
    """Cut a tree at a level and rank its modes."""
    if not 0 <= cut < torch.inf:
        raise MueError(f"`cut` must be a distance of at least 0, got {cut}")
    b, k = prob.shape
    answer, group, kept = torch.arange(k, device=prob.device), tree.groups(cut), prob > 0
    same = (group[:, :, None] == group[:, None]) * prob[:, None]
    total = same.sum(dim=2)  # not scatter_add_, whose order is not determined on a GPU
    total = total.masked_fill((group != answer) | ~kept, 0)
    total, order = total.sort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, answer.expand(b, k))
    mode = rank.gather(1, group).masked_fill(~kept, -1)
    expected = (tree.distance * same).sum(dim=2)[:, :, None]
    min_distance, representative = expected.masked_fill(mode[:, :, None] != answer, torch.inf).min(
        dim=1
    )
    missing = total <= 0
    return Ranking(
        prob=total,
        spread=(min_distance / total).masked_fill(missing, 0),
        representative=representative.where(~missing, representative[:, :1]),
        mode=mode,
    )


def modes_of(
    y: Float[Tensor, "b k *y"],
    prob: Float[Tensor, "b k"],
    code: Int[Tensor, "b k"],
    tree: Tree,
    cut: float,
    ranked: Ranking | None = None,
) -> Modes:
    """The modes of answers whose tree is cut at a level, or was cut and `ranked` there before."""
    ranked = ranking(tree, prob, cut) if ranked is None else ranked
    m = max(1, int((ranked.prob > 0).sum(dim=1).amax()))
    rows = torch.arange(len(y), device=y.device)[:, None]
    return Modes(
        y=y[rows, ranked.representative[:, :m]],
        prob=ranked.prob[:, :m],
        spread=ranked.spread[:, :m],
        representative=ranked.representative[:, :m],
        mode=ranked.mode,
        answers=y,
        answer_prob=prob,
        answer_code=code,
        tree=tree,
        cut=cut,
    )
