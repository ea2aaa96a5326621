"""Calibration of the prior of a trained model on data it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mue.data.source import Source
from mue.errors import MueError
from mue.evaluation.answers import MAX_ANSWERS, Progress, propose_all
from mue.inference.predictor import Predictor
from mue.metrics.energy import distances, energy_distance
from mue.models.modal import Modal

_BATCH = 32
_TINY = 1e-12  # the logarithm of an answer that was not kept must be finite
_IDLE = -30.0  # the shift of a code that was kept for no input: it stays out


@dataclass(frozen=True, slots=True)
class Calibration:
    """A change of the prior's logits: z becomes z / temperature + shift.

    The temperature is above 1 where the model was overconfident. `before` and `after` are the mean
    energy distances of the prior as trained and as calibrated, on the same inputs.
    """

    temperature: float
    shift: Float[Tensor, " n"]
    before: float
    after: float

    def fold(self, modal: Modal) -> dict[str, Tensor]:
        """The last layer of the prior with the change in it: the model gains no parameter."""
        weight, bias = modal.prior.weight.detach().cpu(), modal.prior.bias.detach().cpu()
        t, shift = self.temperature, self.shift
        return {"prior.weight": weight / t, "prior.bias": bias / t + shift}


def fit_calibration(
    predictor: Predictor, source: Source, count: int, *, progress: Progress | None = None
) -> Calibration:
    """Find the temperature and the shifts that minimise the energy distance to the answers known.

    The answers stay as they are; only their probabilities change. The energy distance is a proper
    score, so its minimum is where the probabilities are those of the raters. `source` holds images
    that the model was not trained on; the first `count` of them are used.
    """
    n = predictor.codes
    if not n:
        raise MueError(
            f"a model of the method {predictor.config.method!r} has no probabilities to calibrate; "
            "take one with codes, `vq` or `exact`"
        )
    k = min(MAX_ANSWERS, n)
    batches: list[tuple[Tensor, ...]] = []
    idle = torch.full((n,), _IDLE, dtype=torch.float64)
    for case, h in propose_all(predictor, source, count, k, batch=_BATCH, progress=progress):
        d = distances(h.y > 0.5, case.ys > 0.5)
        sy, ss, yy, q, p = (t.cpu().double() for t in (d.sy, d.ss, d.yy, case.q, h.prob))
        code = h.code.clone().cpu()  # a copy outside inference mode, for autograd
        idle[code[p > _TINY]] = 0
        batches.append((sy, ss, yy, q, p.clamp_min(_TINY).log(), code))
    log_t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    shift = torch.zeros(n, dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:
        total = log_t.new_zeros(())
        for sy, ss, yy, q, z, code in batches:
            p = (z / log_t.exp() + (shift + idle)[code]).softmax(dim=1)
            total = total + energy_distance(sy, ss, yy, p, q).sum()
        return total / count

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
