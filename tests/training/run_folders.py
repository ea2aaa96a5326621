"""What a training has left in its run folder: for tests."""

import itertools
from pathlib import Path
from typing import Any

import torch

from mue.runs.folder import CONFIG, STATE, WEIGHTS, load_config
from mue.runs.log import LOG, read_log
from mue.training.checkpoint import load_state_
from mue.training.state import Training

CPU = torch.device("cpu")
KEPT = {CONFIG, WEIGHTS, STATE, LOG}
VALIDATED: dict[str, Any] = {"ema": 0.9, "validate_every": 5, "validate_inputs": 8}


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def steps(folder: Path) -> list[int]:
    return [record.step for record in read_log(folder)]


def resumed(folder: Path) -> Training:
    """The training that a folder would go on with."""
    training = Training(load_config(folder), CPU)
    load_state_(folder, training)
    return training


def same(one: Path, two: Path) -> bool:
    """Whether two runs ended alike, to the last bit: the weights' file, and all that is trained."""
    if (one / WEIGHTS).read_bytes() != (two / WEIGHTS).read_bytes():
        return False
    a, b = (resumed(folder) for folder in (one, two))
    states = ([*t.learner.state_dict().values(), *t.ema.values(), *_best(t)] for t in (a, b))
    moments = (slots(t) for t in (a, b))
    alike = itertools.chain(zip(*states, strict=True), zip(*moments, strict=True))
    return a.step == b.step and all(torch.equal(x, y) for x, y in alike)


def _best(training: Training) -> list[torch.Tensor]:
    best = training.best
    return [] if best is None else [*best.weights.values(), best.score, best.step, best.since]


def slots(training: Training) -> list[torch.Tensor]:
    """What the optimizer remembers."""
    return list(training.optimizer.state.values())


class Killed(BaseException):
    """The end of a process that cannot say goodbye."""
