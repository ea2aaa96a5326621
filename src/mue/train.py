"""The training loop: `fit` takes steps and yields; its caller logs, saves and evaluates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mue import distributed
from mue.config import Config
from mue.data.draw import normal
from mue.data.source import Source
from mue.models.build import build_learner
from mue.models.learner import VqLearner
from mue.objective import Weights, objective
from mue.types import ExactTrace, Terms, Trace, VqTrace

_START = 100  # a stream of random numbers far from those of the data


class NonFiniteError(ArithmeticError):
    """The loss is not a number any more."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step just taken. What it holds is still on the device: `measure` waits for it.

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


@dataclass(frozen=True, slots=True)
class Record:
    """A step in numbers, as the log keeps it."""

    step: int
    prior: float
    reconstruction: float
    commitment: float
    total: float
    codes: int
    lr: float
    seconds: float
    energy: float = 0.0


class Training:
    """All that changes while training: networks, optimizer, averaged weights, steps taken."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config = config
        self.device = device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.train.seed)
            self.learner = build_learner(config)
        layout = torch.channels_last if config.compute.channels_last else torch.preserve_format
        self.learner.to(device=device, memory_format=layout)  # pyright: ignore[reportCallIssue]
        self.step = 0
        weights = [p for p in self.learner.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            weights,
            lr=torch.tensor(config.train.lr, device=device),
            weight_decay=config.train.weight_decay,
            fused=True,
        )
        self.average = [p.detach().clone() for p in self.network.parameters()]

    @property
    def network(self) -> nn.Module:
        """θ as it is being trained."""
        return self.learner.network

    @torch.no_grad()
    def average_(self) -> None:
        """Let the averaged weights follow: a mean over all steps at first, then over the last."""
        decay = min(self.config.train.average, self.step / (self.step + 10))
        torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
            self.average, list(self.network.parameters()), 1 - decay
        )

    def export(self) -> dict[str, Tensor]:
        """θ as it is evaluated and saved: averaged, where the configuration asks for it."""
        names = [name for name, _ in self.network.named_parameters()]
        return dict(zip(names, self.average, strict=True))


def learning_rate(config: Config, step: int) -> float:
    """The learning rate of the step after `step` steps."""
    t = config.train
    done = step / t.steps
    rise = min(1.0, (step + 1) / (t.warmup + 1))
    if t.schedule == "cosine":
        return t.lr * rise * (1 + math.cos(math.pi * done)) / 2
    passed = [f for at, f in zip(t.milestones, t.factors, strict=True) if done >= at]
    return t.lr * rise * (passed[-1] if passed else 1.0)


def weights_at(config: Config, step: int) -> Weights:
    """What each term counts after `step` steps."""
    o, done = config.objective, step / config.train.steps
    left = max(0.0, 1 - done / o.balance_until) if o.balance_until > 0 else 0.0
    return Weights(
        prior=float(done >= o.prior_from),
        reconstruction=o.reconstruction,
        commitment=o.commitment,
        temperature=o.temperature**left,
        balance=left > 0,
        energy=o.energy,
        divergence=o.divergence,
        best=config.latent.heads > 1,
    )


def batch_index(config: Config, step: int, device: torch.device) -> Int[Tensor, " b"]:
    """Which items of the endless data this process sees in a step: its share of the batch."""
    size, world = config.train.batch, distributed.world()
    if size % world:
        raise ValueError(f"train.batch must be a multiple of the {world} processes, got {size}")
    share = size // world
    first = step * size + distributed.rank() * share
    return torch.arange(first, first + share, device=device)


def fit(training: Training, source: Source) -> Iterator[Step]:
    """Train from the step that `training` is at to the end, yielding after each step.

    Nothing here waits for the device. Between two yields `training` is whole: it may be saved.
    """
    config, device, learner = training.config, training.device, training.learner
    if training.step == 0:
        start_(training, source)
    run = _forward(training)
    bad = torch.zeros((), device=device)
    while training.step < config.train.steps:
        number = training.step
        lr = learning_rate(config, number)
        for group in training.optimizer.param_groups:
            group["lr"].fill_(lr)
        pair = source.pair(batch_index(config, number, device))
        if config.draws:
            torch.manual_seed(_seed(config.train.seed, number, distributed.rank()))
        trace, terms = run(pair.x, pair.y, weights_at(config, number))
        training.optimizer.zero_grad(set_to_none=True)
        terms.total.backward()
        if config.train.clip:
            nn.utils.clip_grad_norm_(learner.parameters(), config.train.clip)
        training.optimizer.step()
        learner.settle_(trace)
        if isinstance(learner, VqLearner) and isinstance(trace, VqTrace):
            _revive_(learner, trace, config, number)
        training.step += 1
        training.average_()
        bad += ~terms.total.detach().isfinite()
        yield Step(training.step, terms, _used(trace), bad, lr)


def measure(step: Step, seconds: float) -> Record:
    """The numbers of a step, over all processes. It waits for the device.

    Raises:
        NonFiniteError: A loss has not been finite, at this step or before.
    """
    values = {name: distributed.all_mean(v).item() for name, v in step.terms.items().items()}
    bad, used = step.bad.clone(), step.used.clone()
    distributed.all_sum_(bad, used)
    if bad.item() > 0:
        culprit = next((k for k, v in values.items() if not math.isfinite(v)), "total")
        raise NonFiniteError(
            f"the loss is not finite at step {step.number}, or was not shortly before: "
            f"its term {culprit!r} is {values[culprit]}"
        )
    return Record(
        step=step.number,
        **values,
        codes=int((used > 0).sum()),
        lr=step.lr,
        seconds=round(seconds, 3),
    )


def start_(training: Training, source: Source) -> None:
    """Give a fresh code book the statistics of the encodings, as the paper does for `vq`."""
    learner, config = training.learner, training.config
    if isinstance(learner, VqLearner):
        book = config.codebook
        pair = source.pair(torch.arange(max(256, config.train.batch), device=training.device))
        rows = torch.arange(book.size, device=training.device)
        learner.start_(pair.x, pair.y, normal(config.train.seed, rows, book.width, stream=_START))
        training.average = [p.detach().clone() for p in training.network.parameters()]


def _forward(training: Training) -> Callable[[Tensor, Tensor, Weights], tuple[Trace, Terms]]:
    """From a batch to the terms, with the precision, layout and fusion that were asked for."""
    compute, device = training.config.compute, training.device
    likelihood, deviation = (
        training.config.objective.likelihood,
        training.config.objective.deviation,
    )
    torch.backends.cudnn.benchmark = True  # sizes stay, so the fastest algorithm is worth a search
    module: nn.Module = training.learner
    if distributed.world() > 1:
        module = DistributedDataParallel(module)
    graphs = compute.compile and device.type == "cuda" and distributed.world() == 1
    call = (
        torch.compile(module, mode="reduce-overhead" if graphs else None)
        if (compute.compile)
        else module
    )

    def run(x: Tensor, y: Tensor, weights: Weights) -> tuple[Trace, Terms]:
        if compute.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        if graphs:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=compute.bfloat16):
            trace = call(x, y)
        return trace, objective(trace, y, weights, likelihood, deviation)

    return run


def _used(trace: Trace) -> Float[Tensor, " n"]:
    if isinstance(trace, VqTrace):
        return torch.zeros_like(trace.log_prior[0]).index_fill_(0, trace.index.flatten(), 1)
    if isinstance(trace, ExactTrace):
        return (trace.log_prior.detach().exp() > 0.01).any(dim=0).float()
    return trace.logits.new_zeros(1)


def _seed(seed: int, step: int, rank: int) -> int:
    """Latents and dropout of a step depend on these three alone, whatever came before."""
    return (seed * 1_000_003 + step * 4099 + rank) % (1 << 63)


def _revive_(learner: VqLearner, trace: VqTrace, config: Config, step: int) -> None:
    book = config.codebook
    due = book.revive_every > 0 and (step + 1) % book.revive_every == 0
    if due and step < book.revive_until * config.train.steps:
        learner.revive_(trace)
