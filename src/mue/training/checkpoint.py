"""Checkpoints: what resuming needs of a training, in its run folder.

Resuming reads `state.safetensors` alone: two files could not be replaced at once.
"""

from pathlib import Path

import torch
from torch import Tensor

from mue.runs.folder import STATE, WEIGHTS, RunError
from mue.runs.weights import load_tensors, load_weights, save_tensors
from mue.training.state import Training


def save_weights(folder: Path, training: Training) -> None:
    """Write the weights as they are evaluated."""
    save_tensors(folder / WEIGHTS, training.export())


def restore_weights(folder: Path, training: Training) -> None:
    """Write the weights as they are evaluated where they are missing or damaged."""
    try:
        load_weights(folder, training.export())
    except RunError:
        save_weights(folder, training)


def save_state(folder: Path, training: Training) -> None:
    """Write the weights as evaluated, then all that resuming needs.

    The first time it is the other way round: where there are weights without a state, they are not
    of a run that was killed.
    """
    first = not (folder / STATE).exists()
    if not first:
        save_weights(folder, training)
    save_tensors(folder / STATE, _state(training))
    if first:
        save_weights(folder, training)


def load_state_(folder: Path, training: Training) -> None:
    """Put `training` where it was when `save_state` was called, to the bit.

    The caller's random state is left as it was.
    """
    here = _state(training)
    tensors = load_tensors(folder / STATE, here)
    for name, tensor in here.items():
        if tensor.dtype != tensors[name].dtype:
            kinds = f"{tensor.dtype}, got {tensors[name].dtype}"
            raise RunError(f"{folder / STATE}: {name!r} must be {kinds}; restore the file")
    step, steps = int(tensors["step"]), training.config.train.steps
    if not 0 <= step <= steps:
        raise RunError(f"{folder / STATE}: its step must be in 0..{steps}, got {step}")
    for name, tensor in here.items():
        tensor.copy_(tensors[name])
    training.step = step


def _state(training: Training) -> dict[str, Tensor]:
    """Every tensor that training changes, by name. The tensors are the training's own."""
    state = {f"learner.{k}": v.detach() for k, v in training.learner.state_dict().items()}
    state |= {f"average.{k}": v for k, v in training.ema.items()}  # the name of the EMA in files
    state |= {f"optimizer.0.{k}": v for k, v in training.optimizer.state.items()}
    if (best := training.best) is not None:
        state |= {f"best.weights.{k}": v for k, v in best.weights.items()}
        state |= {"best.score": best.score, "best.step": best.step, "best.since": best.since}
    state["step"] = torch.tensor(training.step)
    return state
