"""The training loop: `fit` takes steps and yields; its caller logs, saves and evaluates."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mue import collectives
from mue.config.schema import Config, ObjectiveConfig
from mue.data.prefetch import Prefetcher
from mue.data.random import normal
from mue.data.source import Source
from mue.errors import MueError
from mue.models.build import build_learner
from mue.models.learner import ExactLearner, Learner, VqLearner
from mue.models.posterior import Posterior
from mue.nn.blocks import ResidualBlock, compute_
from mue.nn.codebook import Codebook
from mue.nn.shared import share_
from mue.nn.streams import Errands, beside
from mue.nn.unet import UNetDecoder, UNetEncoder
from mue.objective import Likelihood, Weights, objective
from mue.training.optimizer import Update
from mue.training.plan import plan, reason
from mue.types import ExactTrace, Pair, Terms, Trace, VqTrace

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Objective = Callable[[Trace, Tensor, Weights, Likelihood, float], Terms]

_START = 100  # a stream of random numbers far from those of the data
_KNOWN = (
    "The .grad attribute of a Tensor that is not",  # where a compiler looks at features
    "TensorFloat32 tensor cores",  # distances to codes are to be float32
)
"""Beginnings of warnings that a compiler gives for what is meant so."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step just taken. What it holds is still on the device: `measure` waits for it.

    The next step may write into the same memory: what is to be kept is to be measured first.

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


class Training:
    """All that changes while training: networks, how they are updated, averages, steps taken."""

    def __init__(
        self, config: Config, device: torch.device, learner: Learner | None = None
    ) -> None:
        self.config = config
        self.device = device
        self.objective: Objective = objective
        self.plan = plan(config, device)
        if learner is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(config.train.seed)
                learner = build_learner(config)
        self.learner = cast("VqLearner | ExactLearner", learner)  # or another nn.Module
        layout = torch.channels_last if config.compute.channels_last else torch.preserve_format
        self.learner.to(device=device, memory_format=layout)  # pyright: ignore[reportCallIssue]
        self.kernels = self.plan.kernels and _kernels_work(config, device)
        compute_(self.learner, kernels=self.kernels, recompute=config.compute.checkpointing)
        if isinstance(self.learner, VqLearner) and self.kernels and self.plan.cuda_graph:
            self.learner.aside = torch.cuda.Stream(device)
        self.step = 0
        learned = [p for p in self.learner.parameters() if p.requires_grad]
        alone = collectives.world() == 1  # others wait for what autograd has
        self._errands = Errands() if self.kernels and alone else None
        self.update = Update(
            learned,
            config.train,
            fused=not self._fuses,
            rounds=self.kernels,
            gathers=self._errands is not None,
        )
        if self.kernels:
            rounded, places = (
                dict(zip(map(id, learned), views, strict=True))
                for views in (self.update.rounded, self.update.places)
            )
            share_(self.learner, rounded, places, self._errands)
        if self._errands is not None:  # what autograd finds goes to its place at once
            for p, place in zip(learned, self.update.places, strict=True):
                p.grad = place
        means = dict(zip(map(id, learned), self.update.means, strict=True))
        self.average = [
            means[id(p)] if p.requires_grad else p.detach().clone()
            for p in self.network.parameters()
        ]

    @property
    def network(self) -> nn.Module:
        """θ as it is being trained."""
        return self.learner.network

    @property
    def _fuses(self) -> bool:
        """Whether a compiler makes one pass of the update; on a GPU it does better than torch."""
        return self.plan.compile and self.device.type == "cuda"

    def compile_(self) -> None:
        """Let the compiler do it, from the next update on."""
        if self._fuses:
            plain = self.update.sweep_
            fused = torch.compile(plain, dynamic=False)
            self.update.sweep = _while_it_works(self.config, fused, plain)

    @torch.no_grad()
    def follow_(self, decay: Tensor) -> None:
        """Let the weights follow their gradients, which are used up, and their averages them."""
        if self._errands is not None:
            self._errands.wait()
        else:
            self.update.collect_()
        self.update.sweep(decay)
        for mean, p in zip(self.average, self.network.parameters(), strict=True):
            if not p.requires_grad:
                mean.lerp_(p, 1 - decay)

    @torch.no_grad()
    def start_average_(self) -> None:
        """Let the average begin with the weights as they are."""
        for mean, p in zip(self.average, self.network.parameters(), strict=True):
            mean.copy_(p)

    def export(self) -> dict[str, Tensor]:
        """θ as it is evaluated and saved: averaged, where the configuration asks for it."""
        names = [name for name, _ in self.network.named_parameters()]
        return dict(zip(names, self.average, strict=True))


def _kernels_work(config: Config, device: torch.device) -> bool:
    """Whether the kernels can be compiled and run on this GPU: one small block tells."""
    with torch.random.fork_rng(devices=[]):
        block = ResidualBlock(1, 16).to(device)
    try:
        compute_(block, kernels=True, recompute=False)
        block(torch.ones(1, 1, 4, 4, device=device)).sum().backward()
    except Exception as error:  # whatever a compiler may raise
        _fall_back(config, "kernels", error)
        return False
    return True


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
    prior = float(done >= o.prior_from)
    if config.method == "probunet" and o.prior_from > 0:  # at once, it would shut the latent
        prior = min(1.0, done / o.prior_from)
    return Weights(
        prior=prior,
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
    first = first_item(config, step)
    return torch.arange(first, first + batch_share(config), device=device)


def first_item(config: Config, step: int) -> int:
    """Number of the first item that this process sees in a step."""
    return step * config.train.batch + collectives.rank() * batch_share(config)


def batch_share(config: Config) -> int:
    """How many of the inputs of a step each process sees, or why there is no such number."""
    size, world, parts = config.train.batch, collectives.world(), config.compute.accumulate
    if size % world:
        raise MueError(f"train.batch must be a multiple of the {world} processes, got {size}")
    if size % (world * parts):
        raise MueError(
            f"train.batch must be a multiple of the {world} processes and {parts} parts of "
            f"compute.accumulate together, got {size}"
        )
    return size // world


def fit(training: Training, source: Source) -> Iterator[Step]:
    """Train from the step that `training` is at to the end, yielding after each step.

    Nothing here waits for the device. Between two yields `training` is whole: it may be saved.
    """
    config, device, learner = training.config, training.device, training.learner
    batch_share(config)
    training.update.round_()  # they may have been loaded
    if training.step == 0:
        start_(training, source)
    dials = _Dials(training)
    feed = _feed(training, source, dials)
    take = _Take(training, dials, feed)
    run = _Recorded(take) if training.plan.cuda_graph else take
    bad = torch.zeros((), device=device)
    while training.step < config.train.steps:
        number = training.step
        weights = dials.turn_(number)
        feed.fill_(number)
        if config.stochastic:
            torch.manual_seed(_seed(config.train.seed, number, collectives.rank()))
        taken = run(weights)
        if isinstance(learner, VqLearner) and isinstance(taken.trace, VqTrace):
            _revive_(learner, taken.trace, config, number)
        training.step += 1
        bad += taken.bad
        yield Step(training.step, taken.terms, taken.used, bad, learning_rate(config, number))


class _Dials:
    """What differs from step to step, as tensors: a recorded step reads them in its replay."""

    def __init__(self, training: Training) -> None:
        self._config = training.config
        self.first = torch.zeros((), dtype=torch.long, device=training.device)
        self.lr = training.update.lr
        self.prior, self.temperature, self.decay = (
            torch.zeros((), device=training.device) for _ in range(3)
        )

    def turn_(self, step: int) -> Weights:
        """Set them for the step after `step` steps; gives the weights of the terms."""
        config = self._config
        self.first.fill_(first_item(config, step))
        self.lr.fill_(learning_rate(config, step))
        weights = weights_at(config, step)
        self.prior.fill_(weights.prior)
        self.temperature.fill_(weights.temperature)
        # a mean over all steps at first, then over the last
        self.decay.fill_(min(config.train.ema, (step + 1) / (step + 11)))
        return dataclasses.replace(weights, prior=self.prior, temperature=self.temperature)


class _Feed:
    """Gives each part of the batch of a step. What there is to do around that differs."""

    def fill_(self, step: int) -> None:
        """Before the step after `step` steps, on the host."""

    def start_(self) -> None:
        """As the step begins, on the device."""

    def finish_(self) -> None:
        """When the batch is used up, on the device."""

    def __call__(self, part: int) -> Pair:
        """One part of the batch of this step."""
        raise NotImplementedError


class _Made(_Feed):
    """Batches made on the device alone, from the number of their first item."""

    def __init__(self, training: Training, source: Source, dials: _Dials) -> None:
        self._source, self._first = source, dials.first
        self._each = batch_share(training.config) // training.config.compute.accumulate
        self._items = torch.arange(self._each, device=training.device)

    def __call__(self, part: int, ahead: int = 0) -> Pair:
        """One part of the batch of a step, or of what lies `ahead` items after it."""
        return self._source.pair(self._first + (ahead + part * self._each) + self._items)


class _MadeAhead(_Feed):
    """Batches made on the device beside the step before: when a step begins, its batch is there."""

    def __init__(self, training: Training, source: Source, dials: _Dials) -> None:
        self._made = _Made(training, source, dials)
        self._batch, self._parts = training.config.train.batch, training.config.compute.accumulate
        self._beside = torch.cuda.Stream(training.device)
        dials.turn_(training.step)
        self._now = [self._made(part) for part in range(self._parts)]
        self._next: list[Pair] = []

    def start_(self) -> None:
        """Begin to make the next batch."""
        with beside(self._beside):
            self._next = [self._made(part, self._batch) for part in range(self._parts)]

    def finish_(self) -> None:
        """Put it in the place of this one."""
        torch.cuda.current_stream().wait_stream(self._beside)
        _put_(self._now, self._next)

    def __call__(self, part: int) -> Pair:
        """One part of the batch of this step."""
        return self._now[part]


class _Streamed(_Feed):
    """Batches brought to the device, a step ahead, into the same memory each time."""

    def __init__(self, training: Training, source: Source) -> None:
        config, device = training.config, training.device
        parts = config.compute.accumulate
        self._ahead = Prefetcher(
            source, lambda step: batch_index(config, step, torch.device("cpu")).chunk(parts), device
        )
        self._last = config.train.steps - 1
        self._pairs: list[Pair] = []

    def fill_(self, step: int) -> None:
        """Fetch the batch; the thread goes on to the next."""
        pairs = self._ahead(step, prefetch_next=step < self._last)
        if self._pairs:
            _put_(self._pairs, pairs)
        else:
            self._pairs = pairs

    def __call__(self, part: int) -> Pair:
        """One part of it."""
        return self._pairs[part]


def _put_(mine: Sequence[Pair], new: Sequence[Pair]) -> None:
    for old, pair in zip(mine, new, strict=True):
        old.x.copy_(pair.x)
        old.y.copy_(pair.y)


def _feed(training: Training, source: Source, dials: _Dials) -> _Feed:
    if not source.on_device:
        return _Streamed(training, source)
    return (_MadeAhead if training.plan.cuda_graph else _Made)(training, source, dials)


@dataclass(frozen=True, slots=True)
class _Taken:
    trace: Trace
    terms: Terms
    used: Tensor
    bad: Tensor


class _Take:
    """A step, from its batch to the moved weights. All it reads and writes is on the device."""

    def __init__(self, training: Training, dials: _Dials, feed: _Feed) -> None:
        self.training = training
        self._dials = dials
        self._feed = feed
        self._forward, self._alone = _forward(training)

    def __call__(self, weights: Weights) -> _Taken:
        """Take it."""
        training, parts = self.training, self.training.config.compute.accumulate
        traces: list[Trace] = []
        sums: list[Terms] = []
        self._feed.start_()

        def loss(part: int) -> Tensor:
            pair = self._feed(part)
            trace, terms, total = self._forward(pair.x, pair.y, weights)
            traces.append(_detached(trace))
            sums.append(terms)
            return total if parts == 1 else total / parts

        for part in range(parts - 1):
            with self._alone():
                loss(part).backward()
        taken = self._finish(loss(parts - 1), traces, sums)
        self._feed.finish_()
        training.follow_(self._dials.decay)
        return taken

    def _finish(self, loss: Tensor, traces: Sequence[Trace], sums: Sequence[Terms]) -> _Taken:
        """The last gradients; the code book follows, where it can while they are on their way."""
        learner = self.training.learner
        if not isinstance(learner, VqLearner) or learner.aside is None:
            loss.backward()
            return self._settle(traces, sums)
        with beside(learner.aside):
            taken = self._settle(traces, sums)
        loss.backward()
        torch.cuda.current_stream().wait_stream(learner.aside)
        return taken

    def _settle(self, traces: Sequence[Trace], sums: Sequence[Terms]) -> _Taken:
        trace, terms = _joined(traces), Terms.mean(sums)
        self.training.learner.settle_(trace)
        return _Taken(trace, terms, _used(trace), ~terms.total.isfinite())


class _Recorded:
    """A step that is recorded as a CUDA graph once it has warmed up, and from then on replayed."""

    def __init__(self, take: _Take, warm: int = 3) -> None:
        self._take = take
        self._warm = warm
        self._stream = torch.cuda.Stream(take.training.device)
        self._kind: bool | None = None
        self._left = warm
        self._graph: torch.cuda.CUDAGraph | None = None
        self._taken: _Taken | None = None

    def __call__(self, weights: Weights) -> _Taken:
        """Take a step. Weights are tensors but for `balance`: where it changes, all begins anew."""
        if weights.balance != self._kind:
            self._kind, self._left, self._graph, self._taken = (
                weights.balance,
                self._warm,
                None,
                None,
            )
        if self._graph is None and self._left:
            self._left -= 1
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                taken = self._take(weights)
            torch.cuda.current_stream().wait_stream(self._stream)
            return taken
        if self._graph is None or self._taken is None:
            self._graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(
                    self._graph, stream=self._stream, capture_error_mode="thread_local"
                ):
                    self._taken = self._take(weights)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                _fall_back(self._take.training.config, "cuda_graph", error)
                self._graph, self._left = None, -1  # from here on each step is launched
                return self._take(weights)
        self._graph.replay()
        return self._taken


def start_(training: Training, source: Source) -> None:
    """Give a fresh code book the statistics of the encodings, as the paper does for `vq`."""
    learner, config = training.learner, training.config
    if isinstance(learner, VqLearner):
        book = config.codebook
        pair = source.pair(torch.arange(max(256, config.train.batch), device=training.device))
        rows = torch.arange(book.size, device=training.device)
        fresh = normal(config.train.seed, rows, book.width, salt=_START)
        with torch.autocast(training.device.type, torch.bfloat16, enabled=training.plan.bfloat16):
            learner.start_(pair.x, pair.y, fresh)
        training.start_average_()


Forward = Callable[[Tensor, Tensor, Weights], tuple[Trace, Terms, Tensor]]


def _forward(
    training: Training,
) -> tuple[Forward, Callable[[], contextlib.AbstractContextManager[None]]]:
    """From a batch to the terms, as planned; and what keeps a process from meeting the others."""
    how = training.plan
    torch.backends.cudnn.benchmark = True  # sizes stay, so the fastest algorithm is worth a search
    module: nn.Module = training.learner
    alone: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    if collectives.world() > 1:
        module = DistributedDataParallel(module)
        alone = module.no_sync
    call = _Plain(module, training)
    if not how.compile:
        return call, alone
    training.compile_()
    return _compiled(call, training), alone


class _Plain:
    """From a batch to the terms, operator by operator unless its parts have been compiled."""

    def __init__(self, module: nn.Module, training: Training) -> None:
        self.config, self.device = training.config, training.device
        self.bfloat16 = training.plan.bfloat16
        self.module = module
        self.score = _scored(training.objective)

    def __call__(self, x: Tensor, y: Tensor, weights: Weights) -> tuple[Trace, Terms, Tensor]:
        """What became of the batch, and what it costs: each term, and their sum."""
        o = self.config.objective
        if self.config.compute.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bfloat16):
            trace = self.module(x, y)
        return trace, *self.score(trace, y, weights, o)


def _scored(
    objective: Objective,
) -> Callable[[Trace, Tensor, Weights, ObjectiveConfig], tuple[Terms, Tensor]]:
    """The terms, of which only the sum has a gradient."""

    def score(
        trace: Trace, y: Tensor, weights: Weights, o: ObjectiveConfig
    ) -> tuple[Terms, Tensor]:
        terms = objective(trace, y, weights, o.likelihood, o.deviation)
        return terms.detached(), terms.total

    return score


def _compiled(call: _Plain, training: Training) -> Forward:
    """The same with its parts fused, or, where that fails and nobody insists on it, as it is.

    Blocks that are kernels already leave a compiler nothing to do but what stands around them.
    """
    learner = training.learner
    parts: list[tuple[Any, str]] = [(learner, "forward")]
    if training.device.type == "cuda" and collectives.world() == 1:  # nothing is sent on the way
        parts.append((call, "score"))
    if training.kernels:
        around = {UNetEncoder: "enter", UNetDecoder: "enter", Posterior: "beside"}
        around |= {Codebook: "forward", _Plain: "score"}
        parts = [(p, around[type(p)]) for p in [call, *learner.modules()] if type(p) in around]
    plain = [getattr(part, name) for part, name in parts]
    for part, name in parts:
        setattr(part, name, torch.compile(getattr(part, name), dynamic=False))

    def undo() -> None:
        for (part, name), before in zip(parts, plain, strict=True):
            setattr(part, name, before)

    return _while_it_works(training.config, call, call, undo)


def _while_it_works(
    config: Config,
    compiled: Callable[Arguments, Result],
    plain: Callable[Arguments, Result],
    undo: Callable[[], object] = lambda: None,
) -> Callable[Arguments, Result]:
    """What a compiler makes, until it fails; the plain one from then on, if nobody insists."""
    failed = False

    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        nonlocal failed
        if not failed:
            try:
                with warnings.catch_warnings():
                    for known in _KNOWN:
                        warnings.filterwarnings("ignore", known)
                    return compiled(*args, **kwargs)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # whatever a compiler may raise
                _fall_back(config, "compile", error)
                failed = True
                undo()
        return plain(*args, **kwargs)

    return run


def _fall_back(config: Config, switch: str, error: Exception) -> None:
    """Say in a line what is not done because it failed, or refuse where somebody insists on it."""
    if getattr(config.compute, switch) == "on":
        raise MueError(
            f"compute.{switch} is on, and it failed: {reason(error)}; take auto or off"
        ) from error
    warnings.warn(f"compute.{switch} is off: it failed ({reason(error)})", stacklevel=2)


def _detached(trace: Trace) -> Trace:
    """A trace without what its gradients need."""
    fields = {f.name: getattr(trace, f.name).detach() for f in dataclasses.fields(trace)}
    return dataclasses.replace(trace, **fields)


def _joined(traces: Sequence[Trace]) -> Trace:
    """The traces of the parts of a batch as one."""
    if len(traces) == 1:
        return traces[0]
    fields = {
        f.name: torch.cat([getattr(t, f.name) for t in traces])
        for f in dataclasses.fields(traces[0])
    }
    return dataclasses.replace(traces[0], **fields)


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
