"""Calibration of the prior of a trained model on data it has not seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.data.source import Source
from mue.errors import MueError
from mue.evaluation.answers import MAX_ANSWERS, Progress, propose_all
from mue.inference.predictor import Predictor
from mue.metrics.energy import distances, energy_distance
from mue.models.modal import Modal

_BATCH = 32
_TINY = 1e-12  # the logarithm of an answer that was not kept must be finite
_FAR = -30.0  # the shift of a code that was kept for no input: it stays out


@dataclass(frozen=True, slots=True)
class Calibration:
    """A change of the prior's logits: z becomes z / temperature + shift.

    Attributes:
        temperature: Above 1 where the model was overconfident.
        shift: Of each code.
        before: Mean energy distance with the prior as trained.
        after: The same with the calibrated prior, on the same inputs.
    """

    temperature: float
    shift: Float[Tensor, " n"]
    before: float
    after: float

    def fold(self, modal: Modal) -> dict[str, Tensor]:
        """The last layer of the prior with the change in it: the model gains no parameter."""
        weight, bias = modal.prior.weight.detach().cpu(), modal.prior.bias.detach().cpu()
        return {
            "prior.weight": weight / self.temperature,
            "prior.bias": bias / self.temperature + self.shift,
        }


def fit_calibration(
    predictor: Predictor, source: Source, count: int, *, progress: Progress | None = None
) -> Calibration:
    """Find the temperature and the shifts that minimise the energy distance to the answers known.

    The answers stay as they are; only their probabilities change. The energy distance is a proper
    score, so its minimum is where the probabilities are those of the raters.

    Args:
        predictor: A model with codes.
        source: Images that the model was not trained on.
        count: How many of them.
        progress: Called with the number of inputs that are done, and of all.
    """
    n = predictor.codes
    if not n:
        raise MueError(
            f"a model of the method {predictor.config.method!r} has no probabilities to calibrate; "
            "take one with codes, `vq` or `exact`"
        )
    found: list[_Part] = []
    for case, h in propose_all(
        predictor, source, count, min(MAX_ANSWERS, n), batch=_BATCH, progress=progress
    ):
        d = distances(h.y > 0.5, case.ys > 0.5)
        found.append(
            _Part(
                d.sy.cpu().double(),
                d.ss.cpu().double(),
                d.yy.cpu().double(),
                h.prob.cpu().double().clamp_min(_TINY).log(),
                h.code.clone().cpu(),  # a copy outside inference mode, for autograd
                case.q.cpu().double(),
            )
        )
    return _fit(found, n)


@dataclass(frozen=True, slots=True)
class _Part:
    """A batch: distances of answers and raters, log-probabilities, codes, weights."""

    sy: Float[Tensor, "b k m"]
    ss: Float[Tensor, "b k k"]
    yy: Float[Tensor, "b m m"]
    z: Float[Tensor, "b k"]
    code: Int[Tensor, "b k"]
    q: Float[Tensor, "b m"]


def _fit(found: list[_Part], n: int) -> Calibration:
    """Minimise the mean energy distance over the temperature and the shifts of n codes."""
    log_t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    shift = torch.zeros(n, dtype=torch.float64, requires_grad=True)
    inputs = sum(len(part.z) for part in found)
    idle = torch.full((n,), _FAR, dtype=torch.float64)
    for part in found:
        idle[part.code[part.z > math.log(_TINY)]] = 0

    def loss() -> Tensor:
        total = log_t.new_zeros(())
        for part in found:
            p = (part.z / log_t.exp() + (shift + idle)[part.code]).softmax(dim=1)
            total = total + energy_distance(part.sy, part.ss, part.yy, p, part.q).sum()
        return total / inputs

    search = torch.optim.LBFGS([log_t, shift], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> float:
        search.zero_grad()
        value = loss()
        value.backward()
        return value.item()

    before = loss().item()
    search.step(closure)
    moved = torch.where(idle == 0, shift.detach(), idle).float()
    return Calibration(log_t.exp().item(), moved, before, loss().item())
