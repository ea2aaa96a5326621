"""A training step accelerated: kernels, streams, compiler, one CUDA graph."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.config.schema import Config
from mue.data.source import Source
from mue.errors import MueError
from mue.kernels.buffers import Buffers
from mue.kernels.compiled import (
    ChannelwiseGroupNorm,
    Compiled,
    FusibleReadout,
    PolyphaseUpsampleConcat,
    compiled_or_plain,
    without_expected_warnings,
)
from mue.kernels.graphs import CudaGraph
from mue.kernels.plan import Pieces, first_line, plan
from mue.kernels.streams import SideStreams, on_stream
from mue.models.learner import VqLearner
from mue.nn.blocks import ResidualBlock, UpsampleConcat
from mue.nn.replace import replace_modules
from mue.nn.unet import Readout
from mue.objective import Weights
from mue.runtime import collectives
from mue.training.optimizer import FlatAdamW
from mue.training.state import Training
from mue.training.step import Taken, TrainStep
from mue.types import Terms, Trace

WARMUP = 3
"""Steps that are taken eagerly before one is captured."""


def accelerate_training(training: Training, wanted: Pieces) -> Training:
    """The training with another implementation of its step; `notes` say how it is computed."""
    config, device = training.config, training.device
    chosen = plan(config, device)
    pieces = chosen.pieces & wanted
    notes = list(chosen.notes)
    if pieces.blocks and (failure := _kernels_fail(config, device)):
        pieces = pieces & Pieces(
            blocks=False,
            weight_gradient_streams=False,
            posterior_stream=False,
            compiled_optimizer=False,
        )
        notes.append(failure)
    chosen = dataclasses.replace(chosen, pieces=pieces)
    training.notes = (str(chosen), *notes)
    if not (pieces.compiled or device.type == "cuda"):
        return training
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # shapes stay the same: the search pays
    if pieces.blocks:
        streams = SideStreams() if pieces.weight_gradient_streams else None
        adamw = CompiledAdamW if pieces.compiled_optimizer else AcceleratedAdamW
        training.use_optimizer_(adamw(training, streams))
    training.make_step = functools.partial(AcceleratedStep, pieces=pieces)
    return training


def _kernels_fail(config: Config, device: torch.device) -> str | None:
    """Why the kernels cannot be compiled and run on this GPU, if so, by trying one small block."""
    with torch.random.fork_rng(devices=[]):
        block = ResidualBlock(1, 16).to(device)
    try:
        from mue.kernels.modules import FusedResidualBlock  # Triton is not everywhere

        FusedResidualBlock(block)(torch.ones(1, 1, 4, 4, device=device)).sum().backward()
    except Exception as error:  # whatever a compiler may raise
        return _without(config, "kernels", error)
    return None


def _without(config: Config, switch: str, error: Exception) -> str:
    """The line that says what is left out because it failed; an error if it was asked for."""
    if getattr(config.compute, switch) == "on":
        raise MueError(
            f"compute.{switch} is on, and it failed: {first_line(error)}; take auto or off"
        ) from error
    return f"compute.{switch} is off: it failed ({first_line(error)})"


class AcceleratedAdamW(FlatAdamW):
    """AdamW that also rounds the weights to bfloat16, for the kernels.

    With side streams, gradients are added to their buffers by the backward pass itself.

    Attributes:
        rounded: The parameters in bfloat16, each a view of one buffer.
        streams: Where the gradients of weights are computed; None leaves them to autograd.
    """

    def __init__(self, training: Training, streams: SideStreams | None) -> None:
        parameters = training.parameters()
        super().__init__(parameters, training.config.train)
        self.streams = streams
        self._rounded = self.buffer.to(torch.bfloat16)
        self.rounded = self.views(self._rounded)
        if streams is not None:  # what autograd itself computes is added there, too
            for p, grad in zip(parameters, self.grads, strict=True):
                p.grad = grad

    def collect_(self) -> None:
        """Wait for the side streams, or take the gradients from autograd."""
        if self.streams is None:
            super().collect_()
        else:
            self.streams.join()

    def update_(self, ema_decay: Float[Tensor, ""]) -> None:
        """Clip, AdamW, EMA, round."""
        super().update_(ema_decay)
        self.round_()
        if self.streams is not None:
            self.gradient.zero_()

    def round_(self) -> None:
        """Round the parameters to bfloat16."""
        self._rounded.copy_(self.buffer)


class CompiledAdamW(AcceleratedAdamW):
    """`AcceleratedAdamW` whose update is compiled: after the norm, one pass over memory."""

    def __init__(self, training: Training, streams: SideStreams | None) -> None:
        super().__init__(training, streams)
        self._options = self._adamw.param_groups[0]

        def not_compiled(error: Exception) -> None:
            warnings.warn(_without(training.config, "compile", error), stacklevel=2)

        self._update_ = compiled_or_plain(super().update_, not_compiled)

    def update_(self, ema_decay: Float[Tensor, ""]) -> None:
        """Clip, AdamW, EMA, round."""
        self._update_(ema_decay)

    def adamw_(self, gradient: Float[Tensor, " n"]) -> None:
        """AdamW written out: PyTorch's fused kernel cannot be fused with what surrounds it."""
        weight, mean, square = self.buffer, self.state["exp_avg"], self.state["exp_avg_sq"]
        step, (beta1, beta2) = self.state["step"].add_(1), self._options["betas"]
        mean.lerp_(gradient, 1 - beta1)
        square.lerp_(gradient.square(), 1 - beta2)
        bias1 = -torch.expm1(step * math.log(beta1))  # 1 - beta ** step, which would lose digits
        bias2 = -torch.expm1(step * math.log(beta2))
        weight.mul_(1 - self.lr * self._options["weight_decay"])
        weight.sub_(self.lr / bias1 * mean / ((square / bias2).sqrt() + self._options["eps"]))


class AcceleratedStep(TrainStep):
    """`TrainStep` with the pieces that are asked for."""

    def __init__(self, training: Training, source: Source, *, pieces: Pieces) -> None:
        self._pieces = pieces
        self._side: torch.cuda.Stream | None = None
        if pieces.posterior_stream and isinstance(training.learner, VqLearner):
            self._side = torch.cuda.Stream(training.device)
        self._graph: CudaGraph[Taken] | None = None
        self._balance: bool | None = None
        self._compiled_modules: list[Compiled] = []
        super().__init__(training, source)
        self._terms = super().terms
        if pieces.compiled and training.device.type == "cuda" and collectives.world() == 1:
            self._terms = compiled_or_plain(self._terms, self._not_compiled)

    def make_module(self) -> nn.Module:
        """A copy of the learner with kernels in the place of blocks, or compiled as a whole."""
        training, pieces = self.training, self._pieces
        if pieces.blocks:
            from mue.kernels.modules import with_kernels  # Triton is not everywhere

            optimizer = training.optimizer
            assert isinstance(optimizer, AcceleratedAdamW)
            optimizer.round_()  # the parameters may have been loaded
            module = with_kernels(
                training.learner,
                Buffers(optimizer, optimizer.rounded, optimizer.streams),
                compiled=pieces.compiled,
                posterior_stream=self._side,
            )
        elif pieces.compiled:
            fusible = replace_modules(training.module, self._fusible)
            module = Compiled(fusible, plain=training.module)
        else:
            return training.module
        self._compiled_modules = [m for m in module.modules() if isinstance(m, Compiled)]
        return module

    def _fusible(self, module: nn.Module) -> nn.Module | None:
        """The form of a module that a compiler makes more of."""
        match module:
            case nn.GroupNorm() if self._pieces.group_norm:
                return ChannelwiseGroupNorm.of(module)
            case UpsampleConcat():
                return PolyphaseUpsampleConcat()
            case Readout():
                return FusibleReadout(module)
            case _:
                return None

    def __call__(self, weights: Weights) -> Taken:
        """A step, replayed once it has been captured.

        The graph reads weights from the device but for `balance`: where that changes, a new one is
        captured.
        """
        if not self._pieces.cuda_graph:
            return super().__call__(weights)
        if self._graph is None or weights.balance != self._balance:
            self._balance = weights.balance
            self._graph = CudaGraph(
                functools.partial(super().__call__, weights),
                self.training.device,
                warmup=WARMUP,
                on_failure=self._not_captured,
            )
        return self._graph()

    def losses(self, part: int, weights: Weights) -> tuple[Trace, Terms]:
        """Compiled or, once that has failed, as they are."""
        if not self._compiled_modules:
            return super().losses(part, weights)
        try:
            with without_expected_warnings():
                return super().losses(part, weights)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a compiler may raise
            self._not_compiled(error)
        return super().losses(part, weights)

    def terms(self, trace: Trace, y: Tensor, weights: Weights) -> Terms:
        """Compiled. Their sum is not: of a single term, a compiler returns it without gradient."""
        return self._terms(trace, y, weights)

    def backward(self, loss: Tensor, traces: Sequence[Trace], terms: Sequence[Terms]) -> Taken:
        """The gradients, while the code book is updated on another stream."""
        if self._side is None:
            return super().backward(loss, traces, terms)
        with on_stream(self._side):
            taken = self.settle_(traces, terms)
        loss.backward()
        torch.cuda.current_stream().wait_stream(self._side)
        return taken

    def _not_compiled(self, error: Exception) -> None:
        warnings.warn(_without(self.training.config, "compile", error), stacklevel=2)
        for module in self._compiled_modules:
            module.enabled = False
        self._compiled_modules = []

    def _not_captured(self, error: RuntimeError) -> None:
        if isinstance(error, torch.OutOfMemoryError):
            raise error
        warnings.warn(_without(self.training.config, "cuda_graph", error), stacklevel=2)
