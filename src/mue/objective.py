"""What training minimises. Equation labels are the paper's.

With `vq` (eq. `objective`):

    L = CE(E(x), id_c) + Recon(D(c, x), y) + beta |E(x, y) - sg[c]|^2

With `exact`, the marginal likelihood of eq. `var` itself, the code book being finite:

    -log sum_c p(c|x) p(y|c,x)

Its gradient is that of  sum_c w_c [-log p(c|x) - log p(y|c,x)]  with the responsibilities
w_c ~ p(c|x) p(y|c,x) held fixed, so this is how it is written: both methods then have the same
terms, a cross entropy of the prior and a reconstruction, and the terms can be weighted alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mue.config.schema import ObjectiveConfig
from mue.nn.across import ALONE, Across
from mue.nn.soft_iou import soft_class_distance, soft_iou_distance
from mue.types import HeadsTrace, LatentTrace, Terms, Trace, VqTrace

Likelihood = Literal["bernoulli", "categorical", "normal"]
Distance = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Weights:
    """What the objective weighs differently from step to step, or from model to model.

    Attributes:
        prior: 0 while the prior waits for the codes to settle, then 1.
        temperature: Divides what the responsibilities of `exact` are computed from; 1 is exact.
        balance: Whether the codes share the answers of a batch evenly (`exact`, while it starts).
        best: Whether only the best of several heads learns from an answer (M-heads).
    """

    prior: float | Tensor
    temperature: float | Tensor
    balance: bool
    best: bool = False


def log_likelihood(
    logits: Float[Tensor, "b k *y"],
    y: Float[Tensor, "b r *y"],
    kind: Likelihood,
    deviation: float = 1.0,
) -> Float[Tensor, "b k r"]:
    """Give log p(y|c,x) of every answer under every decoding, summed over pixels.

    `bernoulli`: each channel of each pixel is a coin. `categorical`: each pixel has one class, y
    is one-hot over the channels. Both are linear in y, so a matrix product does for all pairs:

        log p = y . a - sum(b),   a = logits, b = softplus(logits)            bernoulli
                y . a,            a = log_softmax(logits)                     categorical

    `normal`: independent deviations of the given size, without the constant.
    """
    match kind:
        case "bernoulli":
            flat, answer = logits.flatten(2), y.flatten(2)
            if flat.shape[1] == answer.shape[1] == 1:  # a product of single rows is slow on a GPU
                return (flat * answer - F.softplus(flat)).sum(dim=2, keepdim=True)
            return flat @ answer.mT - F.softplus(flat).sum(dim=2, keepdim=True)
        case "categorical":
            return logits.log_softmax(dim=2).flatten(2) @ y.flatten(2).mT
        case "normal":
            gap = logits.flatten(2)[:, :, None] - y.flatten(2)[:, None]
            return -0.5 * (gap / deviation).square().sum(dim=3)


def log_joint(
    log_prior: Float[Tensor, "b n"], log_y: Float[Tensor, "b n r"]
) -> Float[Tensor, "b n r"]:
    """Give log p(c, y | x) of every code and answer.

    Its softmax over the codes are their responsibilities p(c | x, y), its logsumexp log p(y | x).
    """
    return log_prior[:, :, None] + log_y


def own_log_likelihood(
    logits: Float[Tensor, "b r *y"], y: Float[Tensor, "b r *y"], config: ObjectiveConfig
) -> Float[Tensor, " br"]:
    """Give log p(y|c,x) of every answer under the decoding of its own code."""
    decoded, answer = (t.flatten(0, 1)[:, None] for t in (logits, y))
    return log_likelihood(decoded, answer, config.likelihood, config.deviation)[:, 0, 0]


def objective(
    trace: Trace,
    y: Float[Tensor, "b r *y"],
    config: ObjectiveConfig,
    weights: Weights,
    across: Across = ALONE,
) -> Terms:
    """The terms for a batch, or for a part of one with reductions `across` all: means."""
    zero, kind = trace.logits.new_zeros(()), config.likelihood
    if isinstance(trace, (VqTrace, LatentTrace)):  # each answer has a decoding of its own
        reconstruction = -config.reconstruction * own_log_likelihood(trace.logits, y, config).mean()
        if isinstance(trace, VqTrace):
            prior = -weights.prior * trace.log_prior.gather(1, trace.index).mean()
            return Terms(prior, reconstruction, config.commitment * trace.distance.mean(), zero)
        beta = weights.prior * config.reconstruction * config.divergence
        return Terms(beta * trace.divergence.mean(), reconstruction, zero, zero)
    log_y = log_likelihood(trace.logits, y, kind, config.deviation)
    if isinstance(trace, HeadsTrace):
        best = log_y.amax(dim=1) if weights.best else log_y.mean(dim=1)
        return Terms(zero, -config.reconstruction * best.mean(), zero, zero)
    log_c = trace.log_prior[:, :, None]
    with torch.no_grad():
        score = log_joint(trace.log_prior, log_y)
        if weights.balance:
            scale = 1 / weights.temperature
            if config.sharpness:
                scale = config.sharpness / likelihood_deviation(log_y, across)
            score = balanced(log_y * scale, across)
        responsibility = score.softmax(dim=1)
    energy_term = zero
    if config.energy:
        s, p = pixel_values(trace.logits, kind), trace.log_prior.exp()
        each = soft_class_distance if kind == "categorical" else soft_iou_distance
        energy_term = config.energy * energy(s, p, y, each)
    return Terms(
        prior=-weights.prior * (responsibility * log_c).sum(dim=1).mean(),
        reconstruction=-config.reconstruction * (responsibility * log_y).sum(dim=1).mean(),
        commitment=zero,
        energy=energy_term,
    )


def pixel_values(logits: Float[Tensor, "b k *y"], kind: Likelihood) -> Float[Tensor, "b k *y"]:
    """What an answer is: probabilities of channels or of classes, or the values themselves."""
    if kind == "normal":
        return logits
    return logits.sigmoid() if kind == "bernoulli" else logits.softmax(dim=2)


def energy(
    s: Float[Tensor, "b n *y"],
    p: Float[Tensor, "b n"],
    y: Float[Tensor, "b r *y"],
    distance: Distance = soft_iou_distance,
) -> Float[Tensor, ""]:
    """The energy distance between weighted answers and raters, mean over the batch.

        2 sum_ij p_i d(s_i, y_j) / r - sum_ij p_i p_j d(s_i, s_j)

    The third term of the distance, that of the raters among themselves, is a constant. d is the
    soft IoU distance, so this is the metric `ged` made smooth: it teaches answers and prior at
    once, and its second term keeps the codes apart.
    """
    attraction = torch.einsum("bn,bnr->b", p, distance(s, y)) / y.shape[1]
    pairwise = distance(s, s)
    pairwise = pairwise - torch.diag_embed(pairwise.diagonal(dim1=1, dim2=2))  # d(s, s) counts as 0
    return (2 * attraction - torch.einsum("bn,bnm,bm->b", p, pairwise, p)).mean()


def likelihood_deviation(
    log_y: Float[Tensor, "b n r"], across: Across = ALONE
) -> Float[Tensor, ""]:
    """How much the codes differ in the likelihood of an answer: the mean standard deviation.

    At the start the codes decode to nearly the same, and in units of nats none of them would be
    responsible for anything more than the others: all of them would learn the same blend.
    """
    each = across.mean(log_y.std(dim=1, correction=0).mean())
    return each.clamp_min(torch.finfo(log_y.dtype).eps)


def balanced(
    score: Float[Tensor, "b n r"], across: Across = ALONE, *, rounds: int = 5
) -> Float[Tensor, "b n r"]:
    """Shift the scores until each code is responsible for the same share of the batch (Sinkhorn).

    At the start all codes decode to much the same answer. The code that is a little better would
    take every answer, the prior would follow, and the others would never learn. An even share for
    each, for a while, makes them specialise instead.
    """
    for _ in range(rounds):
        taken = score.log_softmax(dim=1).logsumexp(dim=(0, 2), keepdim=True)
        largest = taken.clone()
        across.max_(largest)
        share = (taken - largest).exp()
        across.sum_(share)
        score = score - largest - share.log()
    return score
