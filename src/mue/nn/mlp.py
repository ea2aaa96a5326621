"""Encoder and decoder for vectors."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.nn.backbone import Features


def layers(c_in: int, widths: Sequence[int]) -> nn.Sequential:
    """Linear layers, each followed by a ReLU."""
    pairs = pairwise([c_in, *widths])
    return nn.Sequential(*(m for a, b in pairs for m in (nn.Linear(a, b), nn.ReLU())))


class MLPEncoder(nn.Module):
    """Linear layers; the last one's output is both the decoder's feature and the pooled vector."""

    axes = 1

    def __init__(self, c_in: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.layers = layers(c_in, widths)

    def forward(self, x: Float[Tensor, "b c"]) -> Features:
        """The features of a batch of vectors."""
        h = self.layers(x)
        return Features((h,), h, ())


class MLPDecoder(nn.Module):
    """Linear layers on the feature and the code, concatenated."""

    def __init__(self, c_in: int, widths: Sequence[int], c_out: int, *, code_width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            layers(c_in + code_width, widths), nn.Linear(([c_in + code_width, *widths])[-1], c_out)
        )

    def forward(self, features: Features, codes: Float[Tensor, "b k d"]) -> Float[Tensor, "b k c"]:
        """The answer to each code."""
        h = features.levels[-1][:, None].expand(-1, codes.shape[1], -1)
        return self.layers(torch.cat([h, codes.to(h.dtype)], dim=2))
