"""All that changes while training."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mue.config.schema import Config, ObjectiveConfig
from mue.data.source import Source
from mue.models.build import build_learner
from mue.models.learner import Learner
from mue.nn.across import Across
from mue.nn.backbone import Backbone
from mue.nn.blocks import ResidualBlock
from mue.nn.replace import replace_modules
from mue.objective import Weights, objective
from mue.training.batches import batch_share
from mue.training.distributed import PROCESSES
from mue.training.optimizer import FlatAdamW
from mue.types import Terms, Trace

Objective = Callable[[Trace, Tensor, ObjectiveConfig, Weights, Across], Terms]


def use_bfloat16(config: Config, device: torch.device) -> bool:
    """Whether convolutions and matrix products are computed in bfloat16: on a GPU, if it can."""
    cuda = device.type == "cuda"
    able = not cuda or torch.cuda.is_bf16_supported()
    obstacle = None if able else "this GPU cannot compute in bfloat16"
    return config.compute.resolve("bfloat16", obstacle, default=cuda)


def seeded_learner(config: Config, backbone: Backbone | None = None) -> Learner:
    """A learner whose fresh weights depend on the seed of the run alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        return build_learner(config, backbone)


class Best:
    """The weights of the lowest validation score so far, as tensors that a checkpoint holds.

    Attributes:
        weights: θ, by name.
        score: Their score; infinite before the first validation.
        step: The step they are of; 0 before the first validation.
        since: How many validations there have been since, none of them better.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = {name: w.detach().clone() for name, w in weights.items()}
        self.score = torch.tensor(torch.inf, dtype=torch.float64)
        self.step, self.since = torch.tensor(0), torch.tensor(0)

    @torch.no_grad()
    def update_(self, score: float, step: int, weights: Mapping[str, Tensor]) -> None:
        """Keep the weights if their score is lower."""
        if not score < self.score:
            self.since += 1
            return
        self.score.fill_(score)
        self.step.fill_(step)
        self.since.zero_()
        for name, w in self.weights.items():
            w.copy_(weights[name])


class Training:
    """Networks, optimizer, EMA of the weights and `step`, the number of steps taken.

    Attributes:
        learner: θ and φ, as checkpoints name them; built from the configuration unless given.
        network: θ as it is being trained.
        module: What a step calls: the learner, or a copy of it that shares its parameters.
        ema: The exponential moving average (EMA) of the parameters of θ, by name.
        best: What is best by validation; None for a training without.
        bfloat16: Whether convolutions and matrix products are computed in bfloat16.
        across: Reductions over the processes, for the objective and the code book.
        make_step: A subclass of `TrainStep` to take the steps in its place.
        notes: How it is computed, a line for each thing worth knowing.
    """

    def __init__(
        self,
        config: Config,
        device: torch.device,
        *,
        learner: Learner | None = None,
        objective: Objective = objective,
    ) -> None:
        batch_share(config)  # refuses a batch that the processes cannot share
        self.config = config
        self.device = device
        self.objective, self.across = objective, PROCESSES
        self.bfloat16 = use_bfloat16(config, device)
        self.learner = cast("Any", seeded_learner(config) if learner is None else learner)
        layout = torch.channels_last if config.compute.channels_last else torch.preserve_format
        self.learner.to(device=device, memory_format=layout)
        self.network: nn.Module = self.learner.network
        self.module: nn.Module = self.learner
        if config.compute.checkpointing:
            self.module = replace_modules(
                self.learner, lambda m: _Checkpointed(m) if isinstance(m, ResidualBlock) else None
            )
        self.step = 0
        self.use_optimizer_(FlatAdamW(self.parameters(), config.train))
        self.best = Best(self.ema) if config.train.validate_every else None
        self.make_step: Callable[[Training, Source], Any] | None = None
        self.notes: tuple[str, ...] = ("bfloat16" if self.bfloat16 else "float32",)

    def parameters(self) -> list[nn.Parameter]:
        """What the optimizer updates."""
        return [p for p in self.learner.parameters() if p.requires_grad]

    def use_optimizer_(self, optimizer: FlatAdamW) -> None:
        """Take an optimizer of `parameters()`; its EMA is that of θ."""
        self.optimizer = optimizer
        ema = dict(zip(optimizer.parameters, optimizer.ema, strict=True))
        self.ema = {
            name: ema[p] if p.requires_grad else p.detach().clone()
            for name, p in self.network.named_parameters()
        }

    @torch.no_grad()
    def update_(self, ema_decay: Float[Tensor, ""]) -> None:
        """An optimizer step; the EMA of what has no gradient, the codes of `vq`, follows."""
        self.optimizer.collect_()
        self.optimizer.update_(ema_decay)
        for ema, p in zip(self.ema.values(), self.network.parameters(), strict=True):
            if not p.requires_grad:
                ema.lerp_(p, 1 - ema_decay)

    def with_ema(self, parameter: nn.Parameter) -> list[Tensor]:
        """A parameter of θ and its EMA; without one, the parameter alone."""
        names = {p: name for name, p in self.network.named_parameters()}
        ema, here = self.ema[names[parameter]], parameter.detach()
        return [here] if ema.data_ptr() == here.data_ptr() else [here, ema]

    def moments(self, parameter: nn.Parameter) -> list[Tensor]:
        """What the optimizer remembers of the gradients of a parameter: nothing without one."""
        views = [self.optimizer.views(self.optimizer.state[n]) for n in ("exp_avg", "exp_avg_sq")]
        owners = self.optimizer.parameters
        return [v for all_ in views for p, v in zip(owners, all_, strict=True) if p is parameter]

    @torch.no_grad()
    def reset_ema_(self) -> None:
        """Let the EMA start from the current weights."""
        for ema, p in zip(self.ema.values(), self.network.parameters(), strict=True):
            ema.copy_(p)

    @property
    def out_of_patience(self) -> bool:
        """Whether the last `train.patience` validations were no better than one before them."""
        return self.best is not None and 0 < self.config.train.patience <= int(self.best.since)

    def export(self) -> dict[str, Tensor]:
        """θ as it is evaluated and saved: the best by validation or, without one, the EMA."""
        return self.ema if self.best is None or self.best.step == 0 else self.best.weights


class _Checkpointed(nn.Sequential):
    """A block whose activations are computed again in the backward pass, to save memory."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return cast("Tensor", checkpoint(super().forward, input, use_reentrant=False))
