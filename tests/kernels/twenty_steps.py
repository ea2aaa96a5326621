"""Trains 20 steps of a preset plainly and accelerated, and compares losses and weights."""

import dataclasses
import functools
import sys
import warnings

import torch

from mue.config.presets import preset
from mue.config.schema import ComputeConfig
from mue.data.build import build_source
from mue.kernels import accelerate
from mue.training.loop import fit
from mue.training.state import Training

DEVICE = torch.device("cuda", 0)


def steps(
    name: str, *, fast: bool, first: int = 0
) -> tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The loss of each step, and the weights before and after them."""
    config = preset(name)
    train = dataclasses.replace(config.train, steps=20, batch=64, lr=1e-3, warmup=0, seed=first)
    compute = ComputeConfig(compile="on" if fast else "off")
    config = dataclasses.replace(config, train=train, compute=compute)
    training = Training(config, DEVICE)
    if fast:
        training = accelerate(training)
        assert isinstance(training.make_step, functools.partial)
        pieces = training.make_step.keywords["pieces"]
        vq = config.method == "vq"
        assert pieces.cuda_graph
        assert pieces.prefetch
        assert pieces.blocks == pieces.weight_gradient_streams == pieces.posterior_stream == vq
    before = {k: v.clone() for k, v in training.export().items()}
    source = build_source(config.data, "train", seed=first, device=DEVICE)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "compute")  # a piece that fails is said in a warning
        losses = [step.terms.total.item() for step in fit(training, source)]
    return torch.tensor(losses), before, training.export()


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Between two sets of weights."""
    return torch.stack([(a[k] - b[k]).norm() for k in a]).norm().item()


def main(name: str) -> None:
    """Accelerated, a step must not differ by more than bfloat16 explains.

    A step that is lost, taken twice, on the wrong batch or with the wrong weights would differ as
    another batch does, which is what the training with another seed of the data shows.
    """
    plain, before, weights = steps(name, fast=False)
    again, _, _ = steps(name, fast=False)
    fast, same_start, found = steps(name, fast=True)
    assert distance(before, same_start) == 0
    gap = ((fast - plain) / plain).abs().max().item()
    noise = ((again - plain) / plain).abs().max().item()
    moved, apart = distance(weights, before), distance(found, weights)
    sys.stdout.write(
        f"{name}: losses differ by {gap:.2%} (two plain runs {noise:.2%}), weights by "
        f"{apart / moved:.2%} of the distance that training has moved them\n"
    )
    assert gap <= 0.01 + 2 * noise
    assert apart <= 0.2 * moved


if __name__ == "__main__":
    main(sys.argv[1])
