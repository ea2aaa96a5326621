"""What only makes it faster: Triton kernels, side streams, torch.compile and CUDA graphs.

`accelerate` is the one entry. It takes a built `Training` or `Predictor` and returns it
accelerated, as far as the device allows; nothing else of the package needs this folder.
"""

from __future__ import annotations

from typing import TypeVar, cast

from mue.inference.predictor import Predictor
from mue.kernels.inference import accelerate_predictor
from mue.kernels.plan import Pieces as Pieces
from mue.kernels.training import accelerate_training
from mue.training.state import Training

Built = TypeVar("Built", Training, Predictor)


def accelerate(built: Built, *, pieces: Pieces | None = None) -> Built:
    """A training or a predictor that gives the same results faster.

    Where a piece cannot be had, the lines of `Training.notes` say why. `pieces` turns some of them
    off, to see what each gains.

    Raises:
        MueError: A switch of `ComputeConfig` is on, and this machine or model cannot do it.
    """
    if isinstance(built, Training):
        return accelerate_training(built, pieces or Pieces())
    return cast("Built", accelerate_predictor(built))
