"""Trains 20 steps of a preset plainly and accelerated on a GPU, and compares losses and weights.

    python tests/kernels/twenty_steps.py guess

Both compute in bfloat16 and round at different places, and Adam turns the sign of a small gradient
into a whole step: they cannot be equal. The yardsticks are two more plain trainings, one in float32
and one on other batches. `exceeded` lists the bounds.

Seen are faults of every step or of every few: a wrong batch at each step, such as the one before or
always the first, and an optimizer step that is lost or taken twice in every fourth or fifth step.
`FAULTS` has two of them, which a test injects into a plain training on a CPU. Not seen is what
changes less than rounding does: a wrong batch in every fifth step, one lost optimizer step in ten
for `guess`, the last one for both. Each kernel alone is compared with plain PyTorch in
test_autograd.py, which sees more.
"""

import dataclasses
import functools
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mue.config.presets import preset
from mue.config.schema import ComputeConfig
from mue.data.build import build_source
from mue.kernels import accelerate
from mue.objective import Weights
from mue.training.batches import first_item
from mue.training.loop import fit
from mue.training.state import Training
from mue.training.step import TrainStep


@dataclass(frozen=True)
class Run:
    """The loss of each step, and the parameters before and after them."""

    losses: Tensor
    before: list[Tensor]
    after: list[Tensor]


@dataclass(frozen=True)
class Gap:
    """How far a run is from the plain one.

    Attributes:
        losses: Mean relative difference of the losses.
        weights: Distance of the final weights, relative to how far training has moved them.
    """

    losses: float
    weights: float

    @classmethod
    def between(cls, plain: Run, run: Run) -> "Gap":
        losses = ((plain.losses - run.losses) / plain.losses).abs().mean().item()
        moved = _distance(plain.after, plain.before)
        return cls(losses, _distance(plain.after, run.after) / moved)


def _distance(a: list[Tensor], b: list[Tensor]) -> float:
    return torch.stack([(x - y).norm() for x, y in zip(a, b, strict=True)]).norm().item()


class LateBatches(TrainStep):
    """Every step but the first takes the batch of the step before."""

    def prepare_(self, number: int) -> Weights:
        weights = super().prepare_(number)
        self.scalars.first.fill_(first_item(self.training.config, max(0, number - 1)))
        return weights


class LostUpdates(TrainStep):
    """Every fourth step leaves the weights as they are."""

    def prepare_(self, number: int) -> Weights:
        weights = super().prepare_(number)
        if number % 4 == 3:
            self.training.optimizer.lr.zero_()
        return weights


FAULTS: Mapping[str, type[TrainStep]] = {"late batches": LateBatches, "lost updates": LostUpdates}


def train(
    name: str,
    device: torch.device,
    *,
    fast: bool = False,
    bfloat16: Literal["on", "off"] = "on",
    data_seed: int = 0,
    batch: int = 64,
    step: type[TrainStep] = TrainStep,
) -> Run:
    """20 steps."""
    config = preset(name)
    schedule = dataclasses.replace(config.train, steps=20, batch=batch, lr=1e-3, warmup=0)
    compute = ComputeConfig(compile="on" if fast else "off", bfloat16=bfloat16)
    config = dataclasses.replace(config, train=schedule, compute=compute)
    training = Training(config, device)
    training.make_step = step
    if fast:
        training = accelerate(training)
        assert isinstance(training.make_step, functools.partial)
        pieces = training.make_step.keywords["pieces"]
        vq = config.method == "vq"
        assert pieces.cuda_graph
        assert pieces.blocks == pieces.weight_gradient_streams == pieces.posterior_stream == vq
        assert pieces.compiled_optimizer == vq
    before = [p.detach().clone() for p in training.parameters()]
    source = build_source(config.data, "train", seed=data_seed, device=device)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "compute")  # a piece that fails is reported by a warning
        losses = [step.terms.total.item() for step in fit(training, source)]
    return Run(torch.tensor(losses), before, [p.detach().clone() for p in training.parameters()])


def exceeded(found: Gap, float32: Gap, other: Gap) -> list[str]:
    """The bounds that a run exceeds; those on losses and weights see different faults."""
    bounds = {
        "weights: 1.5 times the gap of float32": (found.weights, 1.5 * float32.weights),
        "losses: half the gap of other batches": (found.losses, 0.5 * other.losses),
        "weights: 3/4 of the gap of other batches": (found.weights, 0.75 * other.weights),
    }
    return [words for words, (value, bound) in bounds.items() if value > bound]


def main(name: str) -> None:
    """Compare, print, and fail where they differ by more."""
    train_ = functools.partial(train, name, torch.device("cuda", 0))
    plain = train_()
    gaps = {
        "accelerated": Gap.between(plain, train_(fast=True)),
        "float32": Gap.between(plain, train_(bfloat16="off")),
        "other batches": Gap.between(plain, train_(data_seed=1)),
    }
    sys.stdout.write(f"{name}, relative difference to plain bfloat16, losses and weights:\n")
    for key, gap in gaps.items():
        sys.stdout.write(f"  {key:<14}{gap.losses:8.2%}{gap.weights:8.2%}\n")
    if off := exceeded(*gaps.values()):
        raise SystemExit(f"more than {'; '.join(off)}")


if __name__ == "__main__":
    main(sys.argv[1])
