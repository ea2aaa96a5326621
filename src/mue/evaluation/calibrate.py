"""Calibration of a trained model on data it has not seen: its prior, its modes, its promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.config.schema import ModesConfig
from mue.data.source import Source
from mue.errors import MueError
from mue.evaluation.answered import MAX_ANSWERS, Progress, Request, answered
from mue.evaluation.conformal import limit_for, reachable
from mue.inference.predictor import Predictor
from mue.metrics.energy import Distances, distances
from mue.metrics.overlap import dice
from mue.metrics.ranked import AT_LEAST, ranked_before
from mue.models.modal import Modal
from mue.modes import ModeRule, Modes, Tree, modes_of

COVERAGE = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares of new raters for which it is found how many modes to show."""
_CUTS = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
_BATCH = 32
_TINY = 1e-12  # the logarithm of an answer that was not kept must be finite
_PENALTY = 0.01
"""Weight of the squared log temperature and shifts against the sum over the inputs: a normal prior
around no change, which a few inputs do not overcome and hundreds do not notice."""
_IDLE = -30.0  # the shift of a code that was kept for no input: it stays out


@dataclass(frozen=True, slots=True)
class Calibration:
    """A change of the prior's logits: z becomes z / temperature + shift.

    The temperature is above 1 where the model was overconfident. `before` and `after` are the mean
    energy distances of the prior as trained and as calibrated, on the same inputs. `modes` says
    where the tree of answers is cut, and how many modes must be shown for a coverage; no more than
    `reachable` of the raters have an answer that is like one of the model's. `patients` is how many
    patients, or independent inputs, it was found with.
    """

    temperature: float
    shift: Float[Tensor, " n"]
    before: float
    after: float
    modes: ModesConfig
    reachable: float
    patients: int

    def fold(self, modal: Modal) -> dict[str, Tensor]:
        """The last layers of the prior with the change in them: the model gains no parameter."""
        layers = {"prior": modal.prior}
        if modal.score is not None:
            layers["score.score"] = modal.score.score
        folded = {
            f"{name}.{kind}": layer.get_parameter(kind).detach().cpu() / self.temperature
            for name, layer in layers.items()
            for kind in ("weight", "bias")
        }
        return folded | {"prior.bias": folded["prior.bias"] + self.shift}


@dataclass(frozen=True, slots=True)
class _Batch:
    """Distances and Dice of answers and raters, weights of raters, and the prior's logits."""

    d: Distances
    dice: Float[Tensor, "b k r"]
    q: Float[Tensor, "b r"]
    z: Float[Tensor, "b k"]
    code: Int[Tensor, "b k"]

    def prob(self, temperature: Tensor, shift: Tensor) -> Float[Tensor, "b k"]:
        return (self.z / temperature + shift[self.code]).softmax(dim=1)


def fit_calibration(
    predictor: Predictor,
    source: Source,
    count: int,
    *,
    coverage: Sequence[float] = COVERAGE,
    iou: float = AT_LEAST,
    progress: Progress | None = None,
) -> Calibration:
    """Find probabilities, modes and how many of them to show, from inputs not trained on.

    The temperature and the shifts of the prior minimise the energy distance to the answers known.
    The answers stay as they are; only their probabilities change. The energy distance is a proper
    score, so its minimum is where the probabilities are those of the raters. A small penalty keeps
    a few inputs from moving them far.

    Then the tree is cut where the first mode agrees best with the raters (`dice_top`), and for each
    `coverage` the limit is found up to which modes must be shown (`conformal`), where an answer is
    that of a rater from an overlap of `iou` on. Inputs of one patient are not independent.

    `source` holds images that the model was not trained on; the first `count` of them are used.
    """
    n = predictor.codes
    if not n:
        raise MueError(
            f"a model of the method {predictor.config.method!r} has no probabilities to calibrate; "
            "take one with codes, `vq` or `exact`"
        )
    if not all(0 < c < 1 for c in coverage):
        raise MueError(f"`coverage` must be shares between 0 and 1, got {list(coverage)}")
    k = min(MAX_ANSWERS, n)
    batches: list[_Batch] = []
    patient: list[str] = []  # of each input, or the input itself
    idle = torch.full((n,), _IDLE, dtype=torch.float64)
    request = Request(torch.arange(count, device=source.device), k, batch=_BATCH)
    for each in answered(predictor, source, request, progress=progress):
        case, h = each.case, each.h
        s, ys = predictor.masks(h.y), predictor.masks(case.ys)
        d = distances(s, ys)
        tensors = (d.sy, d.ss, d.yy, dice(s, ys), case.q, h.prob)
        *each_d, dice_scores, q, p = (t.cpu().double() for t in tensors)
        patient += case.group if case.patients else case.id
        code = h.code.clone().cpu()  # a copy outside inference mode, for autograd
        idle[code[p > _TINY]] = 0
        log_p = p.clamp_min(_TINY).log()
        batches.append(_Batch(Distances(*each_d), dice_scores, q, log_p, code))
    log_t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    shift = torch.zeros(n, dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:
        total = log_t.new_zeros(())
        for b in batches:
            p = b.prob(log_t.exp(), shift + idle)
            total = total + b.d.energy(p, b.q).sum()
        return total / count

    search = torch.optim.LBFGS([log_t, shift], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> float:
        search.zero_grad()
        penalty = _PENALTY / count * (log_t.square() + shift.square().sum())
        value = loss() + penalty
        value.backward()
        return value.item()

    before = loss().item()
    search.step(closure)
    temperature, moved = log_t.detach().exp(), torch.where(idle == 0, shift.detach(), idle)
    each = (b.prob(temperature, moved) for b in batches)
    rule = ModeRule(predictor.kind)  # its cut is chosen here
    prob = [rule.kept(p) for p in each]
    trees = [rule.tree(b.d.ss, p) for b, p in zip(batches, prob, strict=True)]
    cut = _best_cut(batches, prob, trees)
    found = [_modes(b, p, tree, cut) for b, p, tree in zip(batches, prob, trees, strict=True)]
    score = torch.cat(
        [
            ranked_before(1 - b.d.sy, m.mode, m.prob, iou)
            for b, m in zip(batches, found, strict=True)
        ]
    )
    q = torch.cat([b.q for b in batches])
    limits = {c: limit_for(c, score, q, patient) for c in sorted(set(coverage))}
    kept = {c: limit for c, limit in limits.items() if limit is not None}
    modes = ModesConfig(cut=cut, iou=iou, coverage=tuple(kept), limits=tuple(kept.values()))
    return Calibration(
        temperature=temperature.item(),
        shift=moved.float(),
        before=before,
        after=loss().item(),
        modes=modes,
        reachable=reachable(score, q, patient),
        patients=len(set(patient)),
    )


def _modes(b: _Batch, prob: Tensor, tree: Tree, cut: float) -> Modes:
    return modes_of(torch.zeros(*prob.shape, 0), prob, b.code, tree, cut)


def _best_cut(batches: list[_Batch], prob: list[Tensor], trees: list[Tree]) -> float:
    """The cut of highest `dice_top`; of equally good ones the nearest to the default."""

    def dice_top(cut: float) -> float:
        total = 0.0
        for b, p, tree in zip(batches, prob, trees, strict=True):
            first = _modes(b, p, tree, cut).representative[:, 0]
            total += (b.dice[torch.arange(len(first)), first] * b.q).sum().item()
        return total

    default = _CUTS[len(_CUTS) // 2]
    return max(_CUTS, key=lambda cut: (round(dice_top(cut), 6), -abs(cut - default)))
