"""φ: what only training needs."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.nn.backbone import Encoder
from mue.nn.codebook import Usage


class Posterior(nn.Module):
    """The deterministic posterior encoder e = E(x, y), and how often each code was its choice.

    The paper ends it with a 1x1 convolution and global average pooling. Averaging commutes with a
    linear map, so `project` is applied to the pooled vector: the same function, on 1 pixel.
    """

    def __init__(self, encoder: Encoder, project: nn.Linear, usage: Usage) -> None:
        super().__init__()
        self.encoder = encoder
        self.project = project
        self.usage = usage

    def forward(
        self, x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]
    ) -> Float[Tensor, "b r d"]:
        """The encoding of each answer together with its input."""
        pooled = self.encoder(concatenate(x, y)).pooled
        return self.project(pooled).unflatten(0, y.shape[:2])


def concatenate(x: Float[Tensor, "b *x"], y: Float[Tensor, "b r *y"]) -> Float[Tensor, "br *xy"]:
    """Each answer with its input, concatenated along the channels."""
    return torch.cat([x.repeat_interleave(y.shape[1], dim=0), y.flatten(0, 1)], dim=1)
