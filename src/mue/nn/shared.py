"""What a training keeps for the layers of its networks, in memory that it has for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from mue.nn.streams import Errands


@dataclass(frozen=True, slots=True)
class Shared:
    """What is kept for some layers.

    Attributes:
        rounded: Their weights in bfloat16, each followed by its bias.
        places: Where the gradient of each weight is added, o ky kx i in memory or o i, and that of
            its bias.
        errands: Who adds them; without, autograd has the gradients.
    """

    rounded: Sequence[tuple[Tensor, Tensor | None]]
    places: Sequence[tuple[Tensor, Tensor]] = ()
    errands: Errands | None = None


def share_(
    module: nn.Module,
    rounded: Mapping[int, Tensor],
    grads: Mapping[int, Tensor],
    errands: Errands | None,
) -> None:
    """Give every part that can use it what is kept for its layers, from that of all, by `id`."""
    for part in cast("Iterable[Any]", module.modules()):
        if not hasattr(part, "shared"):
            continue
        layers: list[nn.Conv2d | nn.Linear] = part.layers()
        places = [(_place(grads[id(layer.weight)]), grads[id(layer.bias)]) for layer in layers]
        alike = all(place.is_contiguous() for place, _ in places)
        part.shared = Shared(
            [(rounded[id(layer.weight)], rounded[id(layer.bias)]) for layer in layers],
            places,
            errands if alike else None,
        )


def _place(grad: Tensor) -> Tensor:
    return grad.permute(0, 2, 3, 1) if grad.ndim == 4 else grad
