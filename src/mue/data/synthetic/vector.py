"""A one-to-many mapping between vectors: a point is rotated by one of three angles."""

import torch
from jaxtyping import Int
from torch import Tensor

from mue.data.random import choose, normal, uniform
from mue.types import Case, Pair

KINDS: dict[str, tuple[float, float, float]] = {
    "near": (0.5, 0.3, 0.2),
    "middle": (0.1, 0.6, 0.3),
    "far": (0.8, 0.2, 0.0),
}
"""The probabilities of a rotation by 0°, 120° and 240°, for points at radius 1, 2 and 3."""
NOISE = 0.05
"""Standard deviation of an answer from its rotated point."""


class Rotations:
    """x is a point within 45° of the first axis, at one of three radii; y is x rotated.

    The radius decides how probable each rotation is, so the same three modes have a different
    distribution for each kind of input.
    """

    def __init__(self, *, seed: int = 0, device: torch.device | None = None) -> None:
        self.device = torch.device("cpu") if device is None else device
        self.on_device = True
        self.seed = seed
        self._prob = torch.tensor(list(KINDS.values()), device=self.device)
        angle = torch.arange(3, device=self.device) * (2 * torch.pi / 3)
        cos, sin = angle.cos(), angle.sin()
        self._rotation = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        """Points, each with one sampled rotation of it."""
        u, kind, x = self._generate(index)
        rotation = self._rotation[choose(u[:, 2:], self._prob[kind])[:, 0]]
        noise = NOISE * normal(self.seed, index.to(self.device), 2, salt=1)
        return Pair(x, (torch.einsum("bij,bj->bi", rotation, x) + noise)[:, None])

    def case(self, index: Int[Tensor, " b"]) -> Case:
        """Points, each with its three rotations and their probabilities."""
        _, kind, x = self._generate(index)
        names = tuple(KINDS)
        return Case(
            x=x,
            ys=torch.einsum("mij,bj->bmi", self._rotation, x),
            q=self._prob[kind],
            id=tuple(f"point-{i}" for i in index.tolist()),
            group=tuple(names[k] for k in kind.tolist()),
            known=True,
        )

    def _generate(self, index: Int[Tensor, " b"]) -> tuple[Tensor, Tensor, Tensor]:
        """The random numbers, the kind and the point of each item."""
        u = uniform(self.seed, index.to(self.device), 3)
        kind = (u[:, 0] * len(KINDS)).long()
        angle = torch.pi / 2 * (u[:, 1] - 0.5)
        x = (1 + kind)[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
        return u, kind, x
