"""What the health of a model is judged by: numbers of each input, and of each code for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mue.data.source import Source
from mue.evaluation.answered import MAX_ANSWERS, Answered, Request
from mue.evaluation.items import spaced_items
from mue.evaluation.measures import answer_log_likelihood, joint_distances
from mue.inference.predictor import MODE_SAMPLES, Predictor
from mue.metrics.bootstrap import Interval, interval
from mue.metrics.energy import Distances
from mue.metrics.modes import distinct, mode_probabilities, mode_tv
from mue.models.modal import in_use
from mue.modes import MIN_PROB, Modes
from mue.objective import log_joint
from mue.types import Case, Hypotheses

ALIKE, MOSTLY = 0.1, 0.8
"""Codes are duplicates if their answers are closer than this share of the cut of the modes, for at
least this share of the inputs."""
_BATCH = 16
_TINY = 1e-6


@dataclass(frozen=True, slots=True)
class CodeHealth:
    """A code in use.

    Attributes:
        code: Row of the code book.
        prior: Mean of p(c | x).
        frequency: Mean of its responsibility p(c | x, y) for the known answers.
        reconstruction: Negative log-likelihood of the answers it is responsible for, in nats.
        blends: Share of the inputs in which it is the most responsible code for two known answers
            that are farther apart than the cut of the modes.
        duplicates: Other codes that have nearly the same answer to most inputs.
    """

    code: int
    prior: float
    frequency: float
    reconstruction: float
    blends: float
    duplicates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over inputs: its mean, and what it is at most for 95 % of them."""

    mean: float
    p95: float


@dataclass(frozen=True, slots=True)
class Measured:
    """Numbers of each input, and of each of the k codes that were decoded for it.

    `unit` is what is independent of one another, a patient or an input, and `unit_name` its name in
    the plural; `known` whether the known answers are all there are, by their probability, and not
    those of raters; `by_mode` the frequency, shared out among the codes of a mode as the prior does
    it; `alike` whether two codes have nearly the same answer. A code is -1 where it was not kept.
    """

    index: Int[Tensor, " b"]
    unit: Int[Tensor, " b"]
    unit_name: str
    category: tuple[str, ...]
    known: bool
    n: int
    ged: Float[Tensor, " b"]
    predicted: Float[Tensor, " b"]
    observed: Float[Tensor, " b"]
    missed: Float[Tensor, " b"]
    differ: Bool[Tensor, " b"]
    spread: Float[Tensor, " b"]
    tv: Float[Tensor, " b"]
    code: Int[Tensor, "b k"]
    prior: Float[Tensor, "b k"]
    frequency: Float[Tensor, "b k"]
    by_mode: Float[Tensor, "b k"]
    cost: Float[Tensor, "b k"]
    blends: Float[Tensor, "b k"]
    alike: Bool[Tensor, "b k k"]

    @property
    def units(self) -> int:
        """How many patients or inputs there are."""
        return len(self.unit.unique())

    def interval(self, values: Float[Tensor, " b"]) -> Interval:
        """The mean, with its bootstrap interval over patients or inputs."""
        return interval(values, self.unit, generator=torch.Generator().manual_seed(0))

    def of_known(self) -> Spread | None:
        """`mode_tv`, where the true probabilities are known."""
        return Spread(self.tv.mean().item(), self.tv.quantile(0.95).item()) if self.known else None

    def of_codes(self, values: Float[Tensor, "b k"]) -> Float[Tensor, " n"]:
        """The mean over the inputs for each code; a code that was not decoded has 0."""
        kept, sums = self.code >= 0, values.new_zeros(self.n)
        return sums.index_add(0, self.code[kept], values[kept]) / len(values)

    def codes(self) -> tuple[CodeHealth, ...]:
        """The codes in use, the most probable first."""
        prior, frequency, blends = map(self.of_codes, (self.prior, self.frequency, self.blends))
        cost = self.of_codes(self.cost) / frequency.clamp_min(_TINY)
        used = self.code[in_use(self.prior)].unique()
        order = used[prior[used].argsort(descending=True, stable=True)].tolist()
        duplicates = self._duplicates(used)
        return tuple(
            CodeHealth(
                code=c,
                prior=prior[c].item(),
                frequency=frequency[c].item(),
                reconstruction=cost[c].item(),
                blends=blends[c].item(),
                duplicates=tuple(d for d in order if d in duplicates[c]),
            )
            for c in order
        )

    def _duplicates(self, used: Int[Tensor, " u"]) -> dict[int, set[int]]:
        """For each code those that have nearly the same answer to most inputs, if both are used.

        Only pairs that occur are counted: of many codes they are a small part of all pairs.
        """
        kept = torch.isin(self.code, used)
        both = (kept[:, :, None] & kept[:, None]).nonzero(as_tuple=True)
        i, j, k = both
        pair, which = (self.code[i, j] * self.n + self.code[i, k]).unique(return_inverse=True)
        share = which.bincount(self.alike[both].double()) / which.bincount()
        found: dict[int, set[int]] = {c: set() for c in used.tolist()}
        for p in pair[share >= MOSTLY].tolist():
            c, d = divmod(p, self.n)
            if c != d:
                found[c].add(d)
        return found

    def ambiguous(self) -> Int[Tensor, " b"]:
        """The items by how much their answers differ, the first of each category before others."""
        order = self.spread.argsort(descending=True, stable=True).tolist()
        first = {self.category[i]: i for i in reversed(order)}
        return self.index[sorted(order, key=lambda i: i != first[self.category[i]])]


def min_prob(k: int) -> float:
    """Of several hundred codes most are not in use and need not be decoded."""
    return MIN_PROB if k == MAX_ANSWERS else 0.0


class Measuring:
    """Collects these numbers, batch by batch, of a few inputs of a data set.

    They are at equal distances in a finite data set, otherwise the first.
    """

    def __init__(self, predictor: Predictor, source: Source, inputs: int) -> None:
        self.predictor = predictor
        k = MODE_SAMPLES if predictor.is_sampler else min(MAX_ANSWERS, predictor.max_answers)
        items = spaced_items(source, inputs)
        self.request = Request(items, k, min_prob=min_prob(k), batch=_BATCH)
        self._found: list[tuple[Tensor, ...]] = []
        self._id: list[str] = []
        self._group: list[str] = []
        self._known = self._patients = False

    @torch.inference_mode()
    def add_(self, batch: Answered) -> None:
        """Measure some of these inputs."""
        predictor, case, h = self.predictor, batch.case, batch.h
        d, modes = joint_distances(predictor, h, case), predictor.group(h)
        of_input = _of_inputs(case, h, modes, d, predictor.cut)
        of_codes = _of_codes(predictor, case, h, modes, d)
        self._found.append(tuple(t.cpu() for t in (batch.items, *of_input, *of_codes)))
        self._id += case.id
        self._group += case.group
        self._known, self._patients = case.known, case.patients

    def measured(self) -> Measured:
        """The numbers of all of them."""
        index, *columns = (torch.cat(t) for t in zip(*self._found, strict=True))
        unit = np.unique(self._group if self._patients else self._id, return_inverse=True)[1]
        return Measured(
            index,
            torch.from_numpy(unit),
            "patients" if self._patients else "inputs",
            ("",) * len(index) if self._patients else tuple(self._group),
            self._known,
            self.predictor.codes,
            *columns,
        )


def _of_inputs(
    case: Case, h: Hypotheses, modes: Modes, d: Distances, cut: float
) -> tuple[Tensor, ...]:
    """The numbers of `Measured` that a model without codes has, too: from `ged` on."""
    p, q = h.normalized().prob, case.q
    nearest, answer = d.sy.where(modes.mode[..., None] >= 0, torch.inf).min(dim=1)
    first = modes.mode.gather(1, answer) == 0
    true = distinct(d.yy, q)
    return (
        d.energy(p, q),
        modes.prob[:, 0],
        (first * q).sum(dim=1),
        ((nearest > cut) * q).sum(dim=1),
        _different(d.yy, q, cut).any(dim=2).any(dim=1),
        torch.einsum("bk,bkl,bl->b", p, d.ss, p),
        mode_tv(mode_probabilities(h.y, h.prob, case.ys, true), true),
    )


def _different(
    yy: Float[Tensor, "b m m"], q: Float[Tensor, "b m"], cut: float
) -> Bool[Tensor, "b m m"]:
    """Whether two known answers are farther apart than the modes' cut."""
    return (yy > cut) & (q > 0)[:, None] & (q > 0)[:, :, None]


def _of_codes(
    predictor: Predictor, case: Case, h: Hypotheses, modes: Modes, d: Distances
) -> tuple[Tensor, ...]:
    """The numbers of `Measured` that each code has, from `code` on: none without codes."""
    if not predictor.codes:
        none = h.prob[:, :0]
        return (none.long(), *[none] * 5, d.ss[:, :0, :0].bool())
    q, log_y = case.q, answer_log_likelihood(h, case.ys, predictor.config.objective)
    score = log_joint(h.prob.log(), log_y)
    weight = score.softmax(dim=1) * q[:, None]
    answer = score.argmax(dim=1)
    together = _different(d.yy, q, predictor.cut) & (answer[:, :, None] == answer[:, None])
    blends = torch.zeros_like(h.prob).scatter_reduce(1, answer, together.any(dim=2).float(), "amax")
    frequency = weight.sum(dim=2)
    same = (modes.mode[:, :, None] == modes.mode[:, None]).to(frequency)
    of_mode = torch.einsum("bkl,bl->bk", same, frequency) * h.prob
    by_mode = of_mode / torch.einsum("bkl,bl->bk", same, h.prob).clamp_min(_TINY)
    cost = -(weight * log_y).sum(dim=2)
    code = h.code.where(h.prob > 0, -1)
    return code, h.prob, frequency, by_mode, cost, blends, d.ss <= ALIKE * predictor.cut
