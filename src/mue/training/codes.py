"""Dividing codes: a cure for a code that serves several modes while others serve none.

Where a code has to answer for two modes, its answer is a blend of them that fits neither. No
gradient leads out of it: the free codes decode to something worse still, so they are responsible
for nothing and learn nothing. So, as for mixtures (split and merge, Ueda et al. 2000), a free code
takes the place of a copy beside the code that reconstructs worst; with `vq`, where it is the
encoder that decides, on the encoding of the answer that this code reconstructs worst. Both have
half of its probability, and share its answers.

Where nothing is wrong nothing is divided; and a code divided needlessly changes no probability of a
mode, which is the sum of those of its codes. The last time, the free codes of `exact` are retired:
one that decodes to much the same as a code in use could take its answers over at any step that the
other one does badly in, and the prior would have to learn their probabilities again.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mue.config.schema import Config, ObjectiveConfig
from mue.data.prefetch import no_prefetching
from mue.data.random import normal
from mue.data.source import Source
from mue.models.learner import ExactLearner, VqLearner
from mue.models.modal import in_use
from mue.objective import log_joint, log_likelihood, own_log_likelihood
from mue.runtime.collectives import all_sum_, farthest
from mue.training.batches import batch_index
from mue.training.state import Training
from mue.types import ExactTrace, Trace, VqTrace

_INPUTS = 256
_FREE = 0.005
"""Share of the answers below which a code is free."""
_USED = 0.02
"""Share of the answers from which on a code may be divided."""
_WORSE, _NATS = 1.25, 1.0
"""How much worse than the others a code reconstructs that is divided: by a factor, and in nats."""
_RETIRED = 1000.0
"""How far below those of all others the logit of a retired code is."""
_OFFSET = 0.1
"""How far a code and its copy are apart, relative to the deviation of all codes."""
_SALT = 101


def is_division_due(config: Config, steps: int) -> bool:
    """Whether codes are to be divided after so many steps: not while they are balanced."""
    book, done, start = config.codebook, steps / config.train.steps, config.objective.balance_until
    return (
        book.split_every > 0 and steps % book.split_every == 0 and start < done <= book.split_until
    )


@dataclass(frozen=True, slots=True)
class CodeUse:
    """Which share of the answers each code explains, and how badly: their mean -log p(y|c,x).

    `prior` is the share that it is expected to explain, the mean of p(c|x).
    """

    share: Float[Tensor, " n"]
    loss: Float[Tensor, " n"]
    prior: Float[Tensor, " n"]


@torch.no_grad()
def measure_codes(training: Training, source: Source) -> CodeUse:
    """Measure the use of the codes on the inputs of the next steps, in every process alike."""
    config, total = training.config, torch.zeros((), device=training.device)
    weight = loss = prior = torch.zeros(config.codebook.size, device=training.device)
    for trace, y in _traces(training, source):
        log_y, responsibility = responsibilities(trace, y, config.objective)
        weight = weight + responsibility.sum(dim=0)
        loss = loss - (responsibility * log_y).sum(dim=0)
        prior = prior + _log_prior(trace).exp().mean(dim=0) * len(log_y)
        total = total + len(log_y)
    all_sum_(weight, loss, prior, total)
    tiny = torch.finfo(weight.dtype).tiny
    return CodeUse(weight / total, loss / weight.clamp_min(tiny), prior / total)


@torch.no_grad()
def worst_encoding(training: Training, source: Source, code: int) -> Float[Tensor, " d"]:
    """The encoding of the answer that a code reconstructs worst, of those it was measured on."""
    encodings: list[Tensor] = []
    losses: list[Tensor] = []
    for trace, y in _traces(training, source):
        assert isinstance(trace, VqTrace)
        log_y, chosen = responsibilities(trace, y, training.config.objective)
        losses.append((-log_y[:, code]).where(chosen[:, code] > 0, -torch.inf))
        encodings.append(trace.encoding.flatten(0, 1))
    return farthest(torch.cat(encodings), torch.cat(losses))


def _traces(training: Training, source: Source) -> Iterator[tuple[Trace, Float[Tensor, "b r *y"]]]:
    """The traces of the batches of the next steps, and their answers."""
    config = training.config
    for i in range(max(1, _INPUTS // config.train.batch)):
        pair = source.pair(batch_index(config, training.step + i, training.device))
        with torch.autocast(training.device.type, torch.bfloat16, enabled=training.bfloat16):
            yield training.learner(pair.x, pair.y), pair.y


def used_codes(trace: Trace) -> Float[Tensor, " n"]:
    """1 for each code in use: chosen by an answer, or in use by its probability for an input."""
    if isinstance(trace, VqTrace):
        return torch.zeros_like(trace.log_prior[0]).index_fill_(0, trace.index.flatten(), 1)
    if isinstance(trace, ExactTrace):
        return in_use(trace.log_prior.detach().exp()).any(dim=0).float()
    return trace.logits.new_zeros(1)


def _log_prior(trace: Trace) -> Float[Tensor, "b n"]:
    assert isinstance(trace, (ExactTrace, VqTrace))
    return trace.log_prior


def responsibilities(
    trace: Trace, y: Float[Tensor, "b r *y"], config: ObjectiveConfig
) -> tuple[Float[Tensor, "a n"], Float[Tensor, "a n"]]:
    """Of each of the a = b r answers: log p(y|c,x), and the share of each code in explaining it."""
    if isinstance(trace, VqTrace):
        log_y = own_log_likelihood(trace.logits, y, config)[:, None]
        chosen = torch.zeros(len(log_y), trace.log_prior.shape[1], device=log_y.device)
        return log_y.expand_as(chosen), chosen.scatter_(1, trace.index.flatten()[:, None], 1)
    assert isinstance(trace, ExactTrace)
    log_y = log_likelihood(trace.logits, y, config.likelihood, config.deviation)
    posterior = log_joint(trace.log_prior, log_y).softmax(dim=1)
    return log_y.mT.flatten(0, 1), posterior.mT.flatten(0, 1)


def find_retired(use: CodeUse) -> Bool[Tensor, " n"]:
    """The codes that are free, or that explain a few answers only, and these badly.

    A rare mode may have no answer among so few; its code is kept for what the prior expects of it.

    >>> share, loss = torch.tensor([0.39, 0.6, 0.01, 0.0]), torch.tensor([24.0, 26.0, 50.0, 50.0])
    >>> find_retired(CodeUse(share, loss, prior=share))
    tensor([False, False,  True,  True])
    >>> find_retired(CodeUse(share, loss, prior=torch.tensor([0.39, 0.59, 0.01, 0.01])))
    tensor([False, False,  True, False])
    """
    used = use.share >= _USED
    if not used.any():  # so many codes that the share of each is small
        return used
    share = use.share.where(used, 0)
    mean = share @ use.loss / share.sum()
    return (use.share < _FREE) & (use.prior < _FREE) | ~used & (use.share >= _FREE) & (
        use.loss >= _WORSE * mean + _NATS
    )


def find_division(use: CodeUse) -> tuple[int, int] | None:
    """The code that reconstructs worst and a free one, if it is so much worse than the others.

    >>> share = torch.tensor([0.4, 0.6, 0.0])
    >>> find_division(CodeUse(share, torch.tensor([24.0, 45.0, 50.0]), share))
    (1, 2)
    >>> find_division(CodeUse(share, torch.tensor([24.0, 26.0, 50.0]), share))
    """
    used = use.share >= _USED
    if not used.any():  # so many codes that the share of each is small
        return None
    worst, free = int(use.loss.where(used, -math.inf).argmax()), int(use.share.argmin())
    others = use.share.where(used, 0)
    others[worst] = 0
    mean = (others @ use.loss / others.sum()).nan_to_num()  # 0 if it is the only one in use
    worse = use.loss[worst] >= _WORSE * mean + _NATS
    return (worst, free) if worse and use.share[free] < _FREE else None


@torch.no_grad()
def divide_code_(
    training: Training, code: int, free: int, at: Float[Tensor, " d"] | None = None
) -> None:
    """Put a free code beside another, or at a given place; each has half of its probability."""
    learner, config = training.learner, training.config
    codes, prior = learner.network.codebook.codes, learner.network.prior
    for parameter in (codes, prior.weight, prior.bias):
        for tensor in (*training.with_ema(parameter), *training.moments(parameter)):
            tensor[free] = tensor[code]
    for bias in training.with_ema(prior.bias):
        bias[[free, code]] -= math.log(2)
    row = torch.tensor([training.step], device=training.device)
    offset = normal(config.train.seed, row, config.codebook.width, salt=_SALT)[0]
    offset *= _OFFSET * codes.std()
    for book in training.with_ema(codes):
        book[free] = book[free] + offset if at is None else at
    if isinstance(learner, VqLearner):
        count = learner.posterior.usage.count
        count[[free, code]] = count[code] / 2
    training.optimizer.round_()


@torch.no_grad()
def retire_(training: Training, codes: Bool[Tensor, " n"]) -> None:
    """Take all probability from these codes."""
    prior = training.learner.network.prior
    for weight, bias in zip(
        training.with_ema(prior.weight), training.with_ema(prior.bias), strict=True
    ):
        weight[codes] = 0
        bias[codes] = bias[~codes].min() - _RETIRED
    for parameter in (prior.weight, prior.bias):
        for moment in training.moments(parameter):
            moment[codes] = 0
    training.optimizer.round_()


def divide_(training: Training, source: Source) -> None:
    """Divide a code that serves several modes, if there is one; at last, retire free codes."""
    if not isinstance(training.learner, (ExactLearner, VqLearner)):
        return
    config, encodes = training.config, isinstance(training.learner, VqLearner)
    with no_prefetching():
        use = measure_codes(training, source)
        if not encodes and not is_division_due(config, training.step + config.codebook.split_every):
            retire_(training, find_retired(use))
        found = find_division(use)
        if found is not None:
            at = worst_encoding(training, source, found[0]) if encodes else None
            divide_code_(training, *found, at)
