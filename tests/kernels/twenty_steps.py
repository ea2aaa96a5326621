"""Trains 20 steps of a preset plainly and accelerated, and compares losses and weights.

    python tests/kernels/twenty_steps.py guess

Both compute in bfloat16, and Adam turns the sign of a small gradient into a whole step: they cannot
be equal. They must differ no more than plain training in bfloat16 and in float32 do, and far less
than trainings on other batches: a step that is lost, taken twice, with the wrong batch or with old
weights would differ like these.
"""

import dataclasses
import functools
import sys
import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mue.config.presets import preset
from mue.config.schema import ComputeConfig
from mue.data.build import build_source
from mue.kernels import accelerate
from mue.training.loop import fit
from mue.training.state import Training

DEVICE = torch.device("cuda", 0)


@dataclass(frozen=True)
class Run:
    """The loss of each step, and the parameters before and after them."""

    losses: Tensor
    before: list[Tensor]
    after: list[Tensor]

    def loss_gap(self, other: "Run") -> float:
        """Mean relative difference of the losses."""
        return ((self.losses - other.losses) / self.losses).abs().mean().item()

    def weight_gap(self, other: "Run") -> float:
        """Distance of the final weights, relative to how far training has moved them."""
        return _distance(self.after, other.after) / _distance(self.after, self.before)


def _distance(a: list[Tensor], b: list[Tensor]) -> float:
    return torch.stack([(x - y).norm() for x, y in zip(a, b, strict=True)]).norm().item()


def train(
    name: str, *, fast: bool = False, bfloat16: Literal["on", "off"] = "on", data_seed: int = 0
) -> Run:
    """20 steps."""
    config = preset(name)
    schedule = dataclasses.replace(config.train, steps=20, batch=64, lr=1e-3, warmup=0)
    compute = ComputeConfig(compile="on" if fast else "off", bfloat16=bfloat16)
    config = dataclasses.replace(config, train=schedule, compute=compute)
    training = Training(config, DEVICE)
    if fast:
        training = accelerate(training)
        assert isinstance(training.make_step, functools.partial)
        pieces = training.make_step.keywords["pieces"]
        vq = config.method == "vq"
        assert pieces.cuda_graph
        assert pieces.prefetch
        assert pieces.blocks == pieces.weight_gradient_streams == pieces.posterior_stream == vq
    before = [p.detach().clone() for p in training.parameters()]
    source = build_source(config.data, "train", seed=data_seed, device=DEVICE)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "compute")  # a piece that fails is reported by a warning
        losses = [step.terms.total.item() for step in fit(training, source)]
    return Run(torch.tensor(losses), before, [p.detach().clone() for p in training.parameters()])


def main(name: str) -> None:
    """Compare, print, and fail where they differ by more."""
    plain, fast = train(name), train(name, fast=True)
    wide, other = train(name, bfloat16="off"), train(name, data_seed=1)
    rows = {"accelerated": fast, "float32": wide, "other batches": other}
    losses = {key: plain.loss_gap(run) for key, run in rows.items()}
    weights = {key: plain.weight_gap(run) for key, run in rows.items()}
    sys.stdout.write(f"{name}, relative difference to plain bfloat16, losses and weights:\n")
    for key in rows:
        sys.stdout.write(f"  {key:<14}{losses[key]:8.2%}{weights[key]:8.2%}\n")
    for gaps in (losses, weights):
        assert gaps["accelerated"] <= 1.5 * gaps["float32"]
        assert gaps["accelerated"] <= 0.6 * gaps["other batches"]


if __name__ == "__main__":
    main(sys.argv[1])
