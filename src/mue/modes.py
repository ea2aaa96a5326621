"""Modes: answers that are alike, grouped by a tree that can be cut at any level.

Axes as in `mue.types`: b batch, k answers, m modes, `*y` the axes of one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mue.errors import MueError
from mue.metrics.modes import entropy
from mue.metrics.overlap import iou_distance
from mue.metrics.ranked import up_to

Distance = Callable[[Tensor, Tensor], Tensor]
"""Distance of every pair of answers: (b m *y), (b n *y) -> (b m n)."""


def mask_distance(a: Float[Tensor, "b m *y"], b: Float[Tensor, "b n *y"]) -> Float[Tensor, "b m n"]:
    """1 - IoU of every pair of probability maps, each cut at one half."""
    _require_images(a)
    s = a > 0.5
    return iou_distance(s, s if b is a else b > 0.5)


def class_distance(
    a: Float[Tensor, "b m *y"], b: Float[Tensor, "b n *y"]
) -> Float[Tensor, "b m n"]:
    """1 - IoU of every pair of label maps, the mean over the classes present in either.

    A pixel belongs to its most probable class. The background, which is present in all of them and
    makes all of them alike, does not count.
    """
    _require_images(a)
    s = class_masks(a)
    return iou_distance(s, s if b is a else class_masks(b))


def class_masks(y: Float[Tensor, "b k c h w"]) -> Bool[Tensor, "b k c_ h w"]:
    """The mask of each class but the first, the background: pixels where it is most probable.

    >>> class_masks(torch.tensor([0.2, 0.3, 0.5]).view(1, 1, 3, 1, 1)).flatten()
    tensor([False,  True])
    """
    classes = torch.arange(1, y.shape[2], device=y.device)
    return y.argmax(dim=2, keepdim=True) == classes[:, None, None]


def euclidean_distance(
    a: Float[Tensor, "b m *y"], b: Float[Tensor, "b n *y"]
) -> Float[Tensor, "b m n"]:
    """The l2 distance of every pair."""
    return torch.cdist(a.flatten(2).float(), b.flatten(2).float())


def _require_images(a: Tensor) -> None:
    if a.ndim != 5:
        raise MueError(
            "the IoU distance is between images, b k c h w, and these answers have "
            f"{a.ndim} axes; pass another `distance`, such as mue.modes.euclidean_distance"
        )


# --- the tree -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tree:
    """How the answers to each input are joined, step by step, into fewer and fewer groups.

    A group is named by its first answer. Every answer names a group until, at `height`, that group
    is joined to the one of `parent`; the last group of all has the height infinity.

    Attributes:
        distance: Distance of every pair of answers.
        parent: The group that each answer's group is joined to.
        height: Distance of the two groups; it never falls on the way to the last group.
    """

    distance: Float[Tensor, "b k k"]
    parent: Int[Tensor, "b k"]
    height: Float[Tensor, "b k"]

    def groups(self, cut: float) -> Int[Tensor, "b k"]:
        """The group of each answer when groups farther apart than `cut` stay apart.

        >>> d = torch.tensor([[[0.0, 0.2, 1.0], [0.2, 0.0, 1.0], [1.0, 1.0, 0.0]]])
        >>> linkage(d, torch.tensor([[0.5, 0.3, 0.2]])).groups(0.5)
        tensor([[0, 0, 2]])
        """
        k = self.parent.shape[1]
        itself = torch.arange(k, device=self.parent.device)
        group = torch.where(self.height <= cut, self.parent, itself)
        for _ in range((k - 1).bit_length()):  # each pass doubles how far an answer has climbed
            group = group.gather(1, group)
        return group


def ungrouped(distance: Float[Tensor, "b k k"]) -> Tree:
    """The tree that joins nothing: each answer is a mode."""
    b, k, _ = distance.shape
    parent = torch.arange(k, device=distance.device).repeat(b, 1)
    return Tree(distance, parent, torch.full_like(parent, torch.inf, dtype=torch.double))


def linkage(distance: Float[Tensor, "b k k"], prob: Float[Tensor, "b k"]) -> Tree:
    """Weighted average linkage: the two nearest groups are joined until one is left.

        d(A, B) = sum_{i in A, j in B} p_i p_j d_ij / (p(A) p(B))

    Answers of probability 0 are joined to nothing. In a tie the most probable answers come first.
    """
    b, k = prob.shape
    d, weight = distance.double(), prob.double()
    alone = torch.eye(k, dtype=torch.bool, device=d.device) | (weight <= 0)[:, None]
    d = d.masked_fill(alone | alone.mT, torch.inf)
    weight = weight.clamp_min(torch.finfo(torch.double).tiny)
    row, nowhere = torch.arange(b, device=d.device), torch.full_like(d[:, 0], torch.inf)
    joins: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(k - 1):  # each step is a few batched operations: k is small, b may be large
        height, pair = d.flatten(1).min(dim=1)
        i, j = pair // k, pair % k
        joins.append((i, j, height))
        both = torch.stack([i, j], dim=1)
        share = weight.gather(1, both)
        total = share.sum(dim=1, keepdim=True)
        joined = (share.unsqueeze(2) * d[row[:, None], both]).sum(dim=1) / total
        d[row, i], d[row, :, i] = joined, joined
        d[row, j], d[row, :, j] = nowhere, nowhere
        weight.scatter_(1, i[:, None], total)
    tree = ungrouped(distance)
    if joins:
        i, j, height = (torch.stack(each, dim=1) for each in zip(*joins, strict=True))
        tree.parent.scatter_(1, j, i)
        tree.height.scatter_(1, j, height)
    return tree


# --- the modes ------------------------------------------------------------------------------------


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
