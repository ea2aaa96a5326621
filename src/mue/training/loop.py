"""The training loop: `fit` takes steps and yields; its caller logs, saves and evaluates."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mue.data.source import Source
from mue.training.codes import divide_, is_division_due
from mue.training.schedule import learning_rate, seeded
from mue.training.start import start_
from mue.training.state import Training
from mue.training.step import TrainStep
from mue.types import Terms


@dataclass(frozen=True, slots=True)
class Step:
    """A step just taken. Its tensors are on the device, and the next step may overwrite them.

    Attributes:
        number: How many steps have been taken, this one included.
        terms: The terms of the objective.
        used: 1 for each code in use: chosen by an answer of the batch (`vq`), or more probable than
            1 % for an input of it (`exact`).
        non_finite: How many steps so far have had a loss that is not finite.
        lr: The learning rate.
    """

    number: int
    terms: Terms
    used: Float[Tensor, " n"]
    non_finite: Tensor
    lr: float


def fit(training: Training, source: Source) -> Iterator[Step]:
    """Train from the step that `training` is at to the end, yielding after each step.

    Nothing here waits for the device, but where codes are divided. Between two yields `training` is
    consistent and may be saved.
    """
    config, device = training.config, training.device
    if training.step == 0:
        start_(training, source)
    take = (training.make_step or TrainStep)(training, source)
    non_finite = torch.zeros((), device=device)
    while training.step < config.train.steps:
        number = training.step
        weights = take.prepare_(number)
        with seeded(config, number, device):
            taken = take(weights)
        training.step += 1
        if is_division_due(config, training.step):
            divide_(training, source)
        non_finite += taken.non_finite
        lr = learning_rate(config, number)
        yield Step(training.step, taken.terms, taken.used, non_finite, lr)
