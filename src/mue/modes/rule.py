"""The one rule that makes modes of answers: for predictors, reports, calibration and the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from mue.modes.distances import DISTANCES, Distance, Kind
from mue.modes.ranked import Modes, modes_of
from mue.modes.tree import Tree, linkage, ungrouped
from mue.types import Hypotheses

By = Literal["mode", "code"]
"""Whether answers that are alike are grouped, or each stands alone."""
MIN_PROB = 1e-4
"""Answers less probable than this are in no mode but in `rest`."""


@dataclass(frozen=True, slots=True)
class ModeRule:
    """Which answers are one mode: those that are joined below `cut`, in the distance of their kind.

    Groups are joined by weighted average linkage until all are farther apart than `cut`. The rule
    of a model is `Predictor.rule`, at the cut that calibration chose.

    >>> import torch
    >>> y = torch.zeros(1, 3, 1, 2, 2)
    >>> y[:, 1] = 1                                # the second answer differs from the others
    >>> h = Hypotheses(y, torch.tensor([[0.4, 0.35, 0.2]]), torch.tensor([[5, 6, 7]]))
    >>> modes = ModeRule("masks", cut=0.5).group(h)
    >>> modes.prob, modes.mode
    (tensor([[0.6000, 0.3500]]), tensor([[0, 1, 0]]))
    """

    kind: Kind = "masks"
    cut: float = 0.5
    min_prob: float = MIN_PROB

    @property
    def distance(self) -> Distance:
        """Of two answers: 1 - IoU, or where answers are no masks the l2 distance."""
        return DISTANCES[self.kind]

    def kept(self, prob: Float[Tensor, "b k"]) -> Float[Tensor, "b k"]:
        """The probability of each answer, 0 for one that is in no mode."""
        return prob.masked_fill(prob < self.min_prob, 0)

    def tree(
        self, distance: Float[Tensor, "b k k"], prob: Float[Tensor, "b k"], *, by: By = "mode"
    ) -> Tree:
        """How answers of given distances are joined."""
        return linkage(distance, self.kept(prob)) if by == "mode" else ungrouped(distance)

    def group(
        self, h: Hypotheses, *, by: By = "mode", distance: Float[Tensor, "b k k"] | None = None
    ) -> Modes:
        """The modes of answers, whose distances may be known already."""
        d = self.distance(h.y, h.y) if distance is None else distance
        return modes_of(h.y, self.kept(h.prob), h.code, self.tree(d, h.prob, by=by), self.cut)
