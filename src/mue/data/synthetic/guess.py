"""The guessing game of the paper: four digits are shown, one of them is held."""

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from mue.data.random import choose, uniform
from mue.data.synthetic.digits import Split, digits
from mue.types import Case, Pair

CATEGORIES: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {
    "A": ((1, 2, 3, 4), (0.25, 0.25, 0.25, 0.25)),
    "B": ((3, 4, 5, 6), (0.1, 0.4, 0.1, 0.4)),
    "C": ((5, 6, 7, 8), (0.3, 0.5, 0.1, 0.1)),
    "D": ((7, 8, 9, 0), (0.1, 0.1, 0.1, 0.7)),
}
"""The digits that are shown in each category, and how probable each is to be the one held."""


class GuessingGame:
    """Endless rounds of the game, drawn on the fly, each from (seed, round) alone.

    x shows four digits side by side, each drawn from MNIST afresh; y is the same picture with only
    one of them left, by the probabilities of the category. A batch is made of gathers on the
    device.
    """

    def __init__(
        self,
        split: Split,
        *,
        seed: int = 0,
        digit: int = 28,
        answers: int = 1,
        device: torch.device | None = None,
    ) -> None:
        self.device = torch.device("cpu") if device is None else device
        self.on_device = True
        self.seed = seed
        self.answers = answers
        pool = digits(split)
        image = pool.image.to(self.device).float() / 255
        self._image = F.avg_pool2d(image, 28 // digit) if digit != 28 else image
        self._first = pool.first.to(self.device)
        self._count = pool.count.to(self.device)
        shown, prob = zip(*CATEGORIES.values(), strict=True)
        self._shown = torch.tensor(shown, device=self.device)
        self._prob = torch.tensor(prob, device=self.device)

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        """Rounds, each with the digit that is held, or with several draws of it."""
        u, category, tiles = self._deal(index)
        held = choose(u[:, 5:], self._prob[category])
        only = F.one_hot(held, 4).to(tiles)[:, :, :, None, None]
        return Pair(_side_by_side(tiles)[:, None], _side_by_side(tiles[:, None] * only)[:, :, None])

    def case(self, index: Int[Tensor, " b"]) -> Case:
        """Rounds, each with its four possible answers and their probabilities."""
        _, category, tiles = self._deal(index)
        alone = tiles[:, None] * torch.eye(4, device=self.device)[:, :, None, None]
        names = tuple(CATEGORIES)
        return Case(
            x=_side_by_side(tiles)[:, None],
            ys=_side_by_side(alone)[:, :, None],
            q=self._prob[category],
            id=tuple(f"round-{i}" for i in index.tolist()),
            group=tuple(names[c] for c in category.tolist()),
        )

    def _deal(self, index: Int[Tensor, " b"]) -> tuple[Tensor, Tensor, Tensor]:
        """The random numbers, the category and the four digits of each round."""
        u = uniform(self.seed, index.to(self.device), 5 + self.answers)
        category = (u[:, 0] * len(CATEGORIES)).long()
        label = self._shown[category]
        count = self._count[label]
        which = torch.minimum((u[:, 1:5] * count).long(), count - 1)
        return u, category, self._image[self._first[label] + which]


def _side_by_side(tiles: Tensor) -> Tensor:
    """Tiles in a row: (..., 4, h, w) to (..., h, 4w)."""
    return tiles.transpose(-3, -2).flatten(-2)
