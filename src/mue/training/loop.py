"""The training loop: `fit` takes steps and yields; its caller logs, saves and evaluates."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.data.prefetch import no_prefetching
from mue.data.random import normal
from mue.data.source import Source
from mue.models.learner import ExactLearner, VqLearner
from mue.models.modal import in_use
from mue.models.posterior import concatenate
from mue.nn.standardize import StandardizedLinear
from mue.objective import Weights
from mue.training.batches import GeneratedBatches, PrefetchedBatches, batch_share
from mue.training.codes import is_split_due, split_
from mue.training.distributed import no_sync, replicate
from mue.training.schedule import Schedule, learning_rate, seeded
from mue.training.state import Training
from mue.types import ExactTrace, Terms, Trace, VqTrace

_CODEBOOK_SALT = 100  # other random numbers than those of the data


@dataclass(frozen=True, slots=True)
class Step:
    """A step just taken. Its tensors are on the device, and the next step may overwrite them.

    Attributes:
        number: How many steps have been taken, this one included.
        terms: The terms of the objective.
        used: 1 for each code in use: chosen by an answer of the batch (`vq`), or more probable than
            1 % for an input of it (`exact`).
        bad: How many steps have had a loss that is not finite.
        lr: The learning rate.
    """

    number: int
    terms: Terms
    used: Float[Tensor, " n"]
    bad: Tensor
    lr: float


def fit(training: Training, source: Source) -> Iterator[Step]:
    """Train from the step that `training` is at to the end, yielding after each step.

    Nothing here waits for the device, but where codes are split. Between two yields `training` is
    consistent and may be saved.
    """
    config, device = training.config, training.device
    batch_share(config)  # refuses a batch that cannot be divided
    if training.step == 0:
        start_(training, source)
    take = (training.make_step or TrainStep)(training, source)
    bad = torch.zeros((), device=device)
    while training.step < config.train.steps:
        number = training.step
        weights = take.prepare_(number)
        with seeded(config, number, device):
            taken = take(weights)
        training.step += 1
        if is_split_due(config, training.step):
            with no_prefetching():
                split_(training, source)
        bad += taken.bad
        yield Step(training.step, taken.terms, taken.used, bad, learning_rate(config, number))


def start_(training: Training, source: Source) -> None:
    """Give the statistics of the data to standardized features, and to the codes of `vq`.

    The paper starts the code book with those of the encodings.
    """
    config, learner, device = training.config, training.learner, training.device
    if not isinstance(learner, (VqLearner, ExactLearner)):
        return
    network, book = learner.network, config.codebook
    if isinstance(learner, ExactLearner) and not isinstance(network.prior, StandardizedLinear):
        return
    pair = source.pair(torch.arange(max(256, config.train.batch), device=device))
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=training.bfloat16):
        if isinstance(network.prior, StandardizedLinear):
            network.prior.start_(network.encoder(pair.x).pooled)
        if isinstance(learner, VqLearner):
            if isinstance(learner.posterior.project, StandardizedLinear):
                both = concatenate(pair.x, pair.y)
                learner.posterior.project.start_(learner.posterior.encoder(both).pooled)
            rows = torch.arange(book.size, device=device)
            fresh = normal(config.train.seed, rows, book.width, salt=_CODEBOOK_SALT)
            learner.start_(pair.x, pair.y, fresh)
    training.reset_ema_()


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a batch: trace, terms, codes in use, and whether the loss is not finite."""

    trace: Trace
    terms: Terms
    used: Tensor
    bad: Tensor


class TrainStep:
    """One step: the losses of a batch, their gradients, the code book, the weights."""

    def __init__(self, training: Training, source: Source) -> None:
        config, device = training.config, training.device
        self.training = training
        self.module = replicate(self.make_module())
        self.schedule = Schedule(config, device, training.optimizer.lr)
        self.batches = (
            GeneratedBatches(config, device, source, self.schedule.first)
            if source.on_device
            else PrefetchedBatches(config, device, source)
        )

    def make_module(self) -> nn.Module:
        """What computes the trace of a batch."""
        return self.training.module

    def prepare_(self, number: int) -> Weights:
        """What the host does before the step after `number` steps."""
        weights = self.schedule.set_(number)
        self.batches.load_(number)
        return weights

    def __call__(self, weights: Weights) -> Taken:
        """What the device does. A batch may be computed in parts, whose gradients add up."""
        parts = self.training.config.compute.accumulate
        traces: list[Trace] = []
        terms: list[Terms] = []

        def loss(part: int) -> Tensor:
            trace, each, total = self.losses(part, weights)
            traces.append(trace)
            terms.append(each)
            return total if parts == 1 else total / parts

        for part in range(parts - 1):
            with no_sync(self.module):
                loss(part).backward()
        taken = self.backward(loss(parts - 1), traces, terms)
        self.training.update_(self.schedule.ema_decay)
        return taken

    def losses(self, part: int, weights: Weights) -> tuple[Trace, Terms, Tensor]:
        """The trace of a part of the batch, its terms, and their sum, which has the gradient."""
        config, pair = self.training.config, self.batches(part)
        x = pair.x
        if config.compute.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.training.bfloat16):
            trace = self.module(x, pair.y)
        terms = self.terms(trace, pair.y, weights)
        return trace, terms.detached(), terms.total

    def terms(self, trace: Trace, y: Tensor, weights: Weights) -> Terms:
        """The terms of the objective for a trace."""
        return self.training.objective(trace, y, self.training.config.objective, weights)

    def backward(self, loss: Tensor, traces: Sequence[Trace], terms: Sequence[Terms]) -> Taken:
        """The gradients of the last part; then the code book follows the whole batch."""
        loss.backward()
        return self.settle_(traces, terms)

    def settle_(self, traces: Sequence[Trace], terms: Sequence[Terms]) -> Taken:
        """Update the code book."""
        trace, mean = _concatenated(traces), Terms.mean(terms)
        self.training.learner.settle_(trace)
        return Taken(trace, mean, _used(trace), ~mean.total.isfinite())


def _concatenated(traces: Sequence[Trace]) -> Trace:
    """The detached traces of all parts of a batch."""
    names = [f.name for f in dataclasses.fields(traces[0])]
    parts = {name: [getattr(t, name).detach() for t in traces] for name in names}
    whole = {name: torch.cat(p) if len(p) > 1 else p[0] for name, p in parts.items()}
    return dataclasses.replace(traces[0], **whole)


def _used(trace: Trace) -> Float[Tensor, " n"]:
    if isinstance(trace, VqTrace):
        return torch.zeros_like(trace.log_prior[0]).index_fill_(0, trace.index.flatten(), 1)
    if isinstance(trace, ExactTrace):
        return in_use(trace.log_prior.detach().exp()).any(dim=0).float()
    return trace.logits.new_zeros(1)
