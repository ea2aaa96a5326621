"""A game for tests and first steps: tiny pictures, few answers, known probabilities."""

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from mue.data.random import choose, uniform
from mue.types import Case, Pair

SIDE = 8
KINDS: dict[str, tuple[float, float]] = {"dim": (0.7, 0.3), "bright": (0.2, 0.8)}
"""How probable the upper and the lower bar are to be the answer, for each kind of picture."""


class Bars:
    """Two bars of light, one above the other; the answer is one of them.

    How bright the bars are decides how probable each is. Where they lie is drawn afresh.
    """

    def __init__(self, *, seed: int = 0, device: torch.device | None = None) -> None:
        self.device = torch.device("cpu") if device is None else device
        self.on_device = True
        self.seed = seed
        self._prob = torch.tensor(list(KINDS.values()), device=self.device)

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        """Pictures, each with the bar that was chosen."""
        u, kind, bars = self._make(index)
        chosen = choose(u[:, 3:], self._prob[kind])[:, 0]
        y = bars[torch.arange(len(bars), device=self.device), chosen]
        return Pair(self._light(kind, bars), y[:, None, None])

    def case(self, index: Int[Tensor, " b"]) -> Case:
        """Pictures, each with both bars and their probabilities."""
        _, kind, bars = self._make(index)
        names = tuple(KINDS)
        return Case(
            x=self._light(kind, bars),
            ys=bars[:, :, None],
            q=self._prob[kind],
            id=tuple(f"bars-{i}" for i in index.tolist()),
            group=tuple(names[k] for k in kind.tolist()),
        )

    def _make(self, index: Int[Tensor, " b"]) -> tuple[Tensor, Tensor, Tensor]:
        """The random numbers, the kind and the two bars of each picture."""
        u = uniform(self.seed, index.to(self.device), 4)
        kind = (u[:, 0] >= 0.5).long()
        half = SIDE // 2
        row = (u[:, 1:3] * half).long() + half * torch.arange(2, device=self.device)
        lit = F.one_hot(row, SIDE).float()
        return u, kind, lit[..., None].expand(-1, -1, -1, SIDE)

    def _light(self, kind: Tensor, bars: Tensor) -> Tensor:
        """The picture that shows both bars."""
        return bars.sum(dim=1, keepdim=True) * (0.4 + 0.6 * kind)[:, None, None, None]
