"""A small data set for tests and first steps: tiny images, two answers, known probabilities."""

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from mue.data.random import choose, uniform
from mue.types import Case, Pair

SIDE = 8
KINDS: dict[str, tuple[float, float]] = {"dim": (0.7, 0.3), "bright": (0.2, 0.8)}
"""The probabilities of the upper and the lower bar to be the answer, for each kind of image."""


class Bars:
    """Two horizontal bars, one above the other; the answer is one of them.

    Their brightness decides how probable each is. Their rows are random.
    """

    def __init__(self, *, seed: int = 0, device: torch.device | None = None) -> None:
        self.device = torch.device("cpu") if device is None else device
        self.on_device = True
        self.seed = seed
        self._prob = torch.tensor(list(KINDS.values()), device=self.device)

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        """Images, each with one sampled bar."""
        u, kind, x, bars = self._generate(index)
        chosen = choose(u[:, 3:], self._prob[kind])[:, 0]
        y = bars[torch.arange(len(bars), device=self.device), chosen]
        return Pair(x, y[:, None, None])

    def case(self, index: Int[Tensor, " b"]) -> Case:
        """Images, each with both bars and their probabilities."""
        _, kind, x, bars = self._generate(index)
        names = tuple(KINDS)
        return Case(
            x=x,
            ys=bars[:, :, None],
            q=self._prob[kind],
            id=tuple(f"bars-{i}" for i in index.tolist()),
            group=tuple(names[k] for k in kind.tolist()),
            known=True,
        )

    def _generate(self, index: Int[Tensor, " b"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The random numbers, the kind, the image and its two bars, for each index."""
        u = uniform(self.seed, index.to(self.device), 4)
        kind = (u[:, 0] >= 0.5).long()
        half = SIDE // 2
        row = (u[:, 1:3] * half).long() + half * torch.arange(2, device=self.device)
        bars = F.one_hot(row, SIDE).float()[..., None].expand(-1, -1, -1, SIDE)
        light = (0.4 + 0.6 * kind)[:, None, None, None]
        return u, kind, bars.sum(dim=1, keepdim=True) * light, bars
