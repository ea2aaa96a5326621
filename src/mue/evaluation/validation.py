"""Validation while training: the weights that would be exported, on inputs not trained on."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.config.schema import Config, ObjectiveConfig
from mue.data.source import Source
from mue.evaluation.answered import Answered, Request, answered
from mue.evaluation.columns import TOP
from mue.evaluation.items import spaced_items
from mue.evaluation.measures import answer_log_likelihood, codes_in_use, joint_distances
from mue.inference.predictor import Predictor
from mue.metrics.calibration import ece
from mue.metrics.modes import mode_probabilities, mode_tv
from mue.metrics.ranked import mode_shares, rater_modes
from mue.objective import log_joint
from mue.runs.log import ValidationRecord
from mue.runtime import collectives
from mue.types import Case, Hypotheses

_BATCH = 64


def predictor_of(network: nn.Module, config: Config, weights: Mapping[str, Tensor]) -> Predictor:
    """A predictor that shares nothing with a training: copies of its network and of `weights`."""
    copied = cast("Any", copy.deepcopy(network))
    with torch.no_grad():
        for name, parameter in copied.named_parameters():
            parameter.copy_(weights[name])
    return Predictor(copied.requires_grad_(False).eval(), config)


def validate(
    predictor: Predictor, step: int, source: Source, validation: Source
) -> ValidationRecord:
    """Measure a model after so many steps of its training on `validation`.

    `source` is what is trained on. The first process computes and the others wait for its numbers,
    so that all of them decide alike.
    """
    numbers = torch.zeros(6, dtype=torch.float64)
    if collectives.rank() == 0:
        numbers.copy_(_measure(predictor, source, validation))
    collectives.all_sum_(numbers)
    score, nll, train_nll, error, codes, by_modes = numbers.tolist()
    metric = "mode_tv" if by_modes else "ged"
    return ValidationRecord(step, metric, score, nll, train_nll, error, int(codes))


@torch.inference_mode()
def _measure(predictor: Predictor, source: Source, validation: Source) -> Float[Tensor, "6"]:
    """The numbers of a `ValidationRecord`, from `score` on, and 1 where the score is `mode_tv`.

    That of images of patients is `ged`, even where the probabilities of their answers are known:
    several of these may be equal.
    """
    objective, by_modes = predictor.config.objective, False
    # how like a known answer one of ours has to be, in 1 - distance
    iou = predictor.config.modes.iou
    at_least = 1 - predictor.cut if predictor.kind == "vectors" else iou
    found: list[tuple[Tensor, ...]] = []
    for batch in _answers(predictor, validation):
        case, h = batch.case, batch.h
        by_modes = case.known and not case.patients
        if by_modes:
            p, q = mode_probabilities(h.y, h.prob, case.ys), case.q
            score = mode_tv(p, q)
        else:
            whole, d = h.normalized(), joint_distances(predictor, h, case)
            modes = predictor.group(whole)
            p, score = modes.prob, d.energy(whole.prob, case.q)
            q = mode_shares(rater_modes(1 - d.sy, modes.mode, at_least), case.q, p.shape[1])
        nll = negative_log_likelihood(h, case, objective)
        code, prob = h.code.flatten(), h.prob.flatten()
        found.append(tuple(t.cpu() for t in (score, nll, p[p > 0], q[p > 0], code, prob)))
    score, nll, p, q, code, prob = (torch.cat(t) for t in zip(*found, strict=True))
    seen = [
        negative_log_likelihood(batch.h, batch.case, objective).cpu()
        for batch in _answers(predictor, source)
    ]
    codes = torch.tensor(codes_in_use(predictor.codes, code, prob))
    known = torch.tensor(by_modes)
    columns = (score, nll, torch.cat(seen), ece(p, q), codes, known)
    return torch.stack([t.double().mean() for t in columns])


def _answers(predictor: Predictor, source: Source) -> Iterator[Answered]:
    """Inputs spaced over a data set, answered."""
    items = spaced_items(source, predictor.config.train.validate_inputs)
    request = Request(items, min(TOP, predictor.max_answers), batch=_BATCH)
    return answered(predictor, source, request)


def negative_log_likelihood(
    h: Hypotheses, case: Case, config: ObjectiveConfig
) -> Float[Tensor, " b"]:
    """-log sum_k p_k p(y | k, x), summed over pixels, the mean over the known answers y by weight.

    Answers that were not kept count as impossible, so it is an upper bound. Probabilities of pixels
    stay within 1e-6 of 0 and 1.
    """
    log_y = answer_log_likelihood(h, case.ys, config)
    return -(log_joint(h.prob.log(), log_y).logsumexp(dim=1) * case.q).sum(dim=1)
