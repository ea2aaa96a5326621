"""A linear layer for features that hardly differ between inputs."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class StandardizedLinear(nn.Linear):
    """A linear layer of features less their mean, and divided by one number, their deviation.

    What an encoder makes of two inputs before it is trained differs by a few per cent only. For a
    linear layer that is a large constant and a small signal, which it learns slowly. `start_` sets
    `mean` and `deviation`, which then stay as they are; until then they do nothing.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.mean = nn.Parameter(torch.zeros(in_features), requires_grad=False)
        self.deviation = nn.Parameter(torch.ones(()), requires_grad=False)

    @torch.no_grad()
    def start_(self, features: Float[Tensor, "b i"]) -> None:
        """Take mean and deviation of the features of some inputs."""
        variance, mean = torch.var_mean(features.float(), dim=0)
        self.mean.copy_(mean)
        self.deviation.copy_(variance.mean().sqrt().clamp_min(1e-6))

    def forward(self, input: Float[Tensor, "b i"]) -> Float[Tensor, "b o"]:  # noqa: A002
        """The layer's output; the argument has the name that PyTorch gives it."""
        return super().forward((input - self.mean) / self.deviation)
