"""Protocols of encoders and decoders: bring your own, or take those of `mue.nn`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Features:
    """The output of an encoder.

    Attributes:
        levels: Features for the decoder's skip connections, the finest first.
        pooled: One vector for each input, from which the prior and the encoding are read.
        size: Height and width of the input before any padding; empty for vectors.
    """

    levels: tuple[Tensor, ...]
    pooled: Float[Tensor, "b c"]
    size: tuple[int, ...]


@runtime_checkable
class Encoder(Protocol):
    """Turns inputs into features."""

    axes: int
    """Axes of an input without the batch: 3 for images, 1 for vectors."""

    def __call__(self, x: Float[Tensor, "b *x"], /) -> Features:
        """The features of each input."""
        ...


@runtime_checkable
class Decoder(Protocol):
    """Turns the features of an input and k codes into k answers."""

    def __call__(
        self, features: Features, codes: Float[Tensor, "b k d"], /
    ) -> Float[Tensor, "b k *y"]:
        """Logits of an answer for each code."""
        ...


@dataclass(frozen=True, slots=True)
class Backbone:
    """How to build an encoder and a decoder that fit one another.

    Every method builds its networks from these two; `vq` and `probunet` need several encoders.

    Attributes:
        encoder: `encoder(c_in)` for inputs of so many channels.
        decoder: `decoder(code_width, heads)` for codes or latents of that width (0 for none),
            with `heads` answers side by side in the channels.
        width: Length of the encoder's pooled vector.
    """

    encoder: Callable[[int], Encoder]
    decoder: Callable[[int, int], Decoder]
    width: int
