"""Numbers of answers and known answers that several judges need."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.config.schema import ObjectiveConfig
from mue.inference.predictor import Predictor
from mue.metrics.energy import Distances
from mue.models.modal import in_use
from mue.objective import log_likelihood
from mue.types import Case, Hypotheses

_TINY = 1e-6  # a pixel is at least this uncertain, or one wrong pixel decides the likelihood


def joint_distances(predictor: Predictor, h: Hypotheses, case: Case) -> Distances:
    """Distances of answers to known answers, of answers, and of known answers, in one pass."""
    k, y = h.y.shape[1], torch.cat([h.y, case.ys], dim=1)
    d = predictor.distance(y, y)
    return Distances(d[:, :k, k:], d[:, :k, :k], d[:, k:, k:])


def codes_in_use(n: int, code: Int[Tensor, "*a"], prob: Float[Tensor, "*a"]) -> int:
    """How many of n codes are in use, from the code and the probability of each answer."""
    highest = torch.zeros(n + 1)  # the last entry is of answers without a code, which is -1
    highest.scatter_reduce_(0, code.flatten() % (n + 1), prob.flatten(), "amax")
    return int(in_use(highest[:-1]).sum())


def answer_log_likelihood(
    h: Hypotheses, ys: Float[Tensor, "b m *y"], config: ObjectiveConfig
) -> Float[Tensor, "b k m"]:
    """Log p(y | k, x) of known answers under every answer, summed over pixels.

    Probabilities of pixels stay within 1e-6 of 0 and 1.
    """
    kind, y = config.likelihood, h.y
    if kind != "normal":
        y = y.logit(_TINY) if kind == "bernoulli" else y.clamp_min(_TINY).log()
    return log_likelihood(y, ys, kind, config.deviation)
