"""The tree of answers: groups that are alike are joined until one is left."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


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
