"""A direct implementation of `exact`: features copied for each code, a sum for every pair."""

from __future__ import annotations

from unittest.mock import patch

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mue.config.schema import ObjectiveConfig
from mue.models.modal import Modal
from mue.nn.across import ALONE, Across
from mue.nn.replace import replace_modules
from mue.nn.unet import Join, Readout
from mue.objective import Likelihood, Weights
from mue.objective import objective as together
from mue.training.state import Training
from mue.types import ExactTrace, Terms, Trace


def write_out_(training: Training) -> None:
    """Let a training of `exact` compute so; other methods have no such pairs."""
    network = training.learner.network
    if training.config.method != "exact" or not isinstance(network, Modal):
        return
    training.objective = objective
    training.module = replace_modules(
        training.learner, lambda m: CopyingReadout(m) if isinstance(m, Readout) else None
    )


class CopyingReadout(Readout):
    """A readout of h copied and joined for each code."""

    def __init__(self, readout: Readout) -> None:
        nn.ModuleList.__init__(self, list(readout))

    def forward(
        self, h: Float[Tensor, "b c h w"], join: Join, codes: Float[Tensor, "b k d"]
    ) -> Float[Tensor, "b k c2 h w"]:
        """Logits of the answer to each code."""
        logits = join(h, codes)
        for layer in self:
            logits = layer(logits)
        return logits.unflatten(0, codes.shape[:2])


def objective(
    trace: Trace,
    y: Float[Tensor, "b r *y"],
    config: ObjectiveConfig,
    weights: Weights,
    across: Across = ALONE,
) -> Terms:
    """The terms of `mue.objective.objective`, with tensors of b n r *y and b n n *y."""
    if not isinstance(trace, ExactTrace) or config.likelihood != "bernoulli":
        raise TypeError(
            f"`trace` must be of the method exact with a Bernoulli likelihood, got {type(trace)}"
        )
    pairs = {"log_likelihood": log_likelihood, "soft_iou_distance": soft_iou_distance}
    with patch.multiple("mue.objective", **pairs):
        return together(trace, y, config, weights, across)


def log_likelihood(
    logits: Float[Tensor, "b n *y"],
    y: Float[Tensor, "b r *y"],
    kind: Likelihood,
    deviation: float,
) -> Float[Tensor, "b n r"]:
    """Every answer under every decoding, pixel by pixel."""
    del kind, deviation  # Bernoulli
    a, b = torch.broadcast_tensors(logits[:, :, None], y[:, None])
    return -F.binary_cross_entropy_with_logits(a, b, reduction="none").flatten(3).sum(dim=3)


def soft_iou_distance(
    a: Float[Tensor, "b m *y"], b: Float[Tensor, "b n *y"]
) -> Float[Tensor, "b m n"]:
    """Every pair of probability maps, pixel by pixel."""
    left, right = a.flatten(2)[:, :, None], b.flatten(2)[:, None]
    both = left * right
    return 1 - (both.sum(dim=3) + 1) / ((left + right - both).sum(dim=3) + 1)
