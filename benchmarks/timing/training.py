"""Steps of training, naive and ours in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from mue.config.presets import preset
from mue.config.schema import Config
from mue.data.build import build_source
from mue.data.source import Source
from mue.kernels import Pieces, accelerate
from mue.training.loop import fit
from mue.training.state import Training
from timing.floor import Limits, Work, count_step
from timing.random_slices import random_slices
from timing.setups import naive, ours, precision
from timing.timer import Budget, Job, Progress, Timing, interleave
from timing.written_out import write_out_

ENDLESS = 1_000_000
"""Steps that no measurement comes to the end of."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A training that is timed.

    Attributes:
        preset: The network and the method.
        batch: Inputs in a step.
        side: Height and width of slices; None where the data decide it.
    """

    preset: str
    batch: int
    side: int | None = None


def workloads(device: torch.device, *, quick: bool = False) -> list[Workload]:
    """What is trained on a device: a CPU takes smaller batches, to be done in minutes."""
    games, slices = (256, 64) if device.type == "cuda" else (8, 1) if quick else (32, 4)
    return [
        Workload("guess", games),
        Workload("lidc", slices, 128),
        Workload("lidc-exact", slices, 128),
    ]


def workload_config(workload: Workload, device: torch.device, seed: int = 0) -> Config:
    """The preset with that batch. All terms of the objective are on from the first step."""
    config = preset(workload.preset)
    return replace(
        config,
        objective=replace(config.objective, prior_from=0.0),
        train=replace(config.train, batch=workload.batch, steps=ENDLESS, seed=seed),
        compute=replace(config.compute, device=device.type),
    )


def workload_source(workload: Workload, config: Config, device: torch.device) -> Source:
    """Its data: random where the preset learns from slices."""
    if workload.side is not None and config.data.name == "slices":
        return random_slices(config.data, workload.side, device, seed=config.train.seed)
    return build_source(config.data, "train", seed=config.train.seed, device=device)


def naive_job(config: Config, source: Source, device: torch.device) -> Job:
    """A function that takes one more step of plain training each time it is called."""
    training = Training(naive(config), device)
    write_out_(training)
    return _steps(training, source)


def training_job(
    config: Config, source: Source, device: torch.device, *, pieces: Pieces | None = None
) -> Job:
    """A function that takes one more step of accelerated training each time it is called."""
    return _steps(accelerate(Training(config, device), pieces=pieces), source)


def _steps(training: Training, source: Source) -> Job:
    training.step = 1  # skips the initialization of the codes: it does not change the time
    steps = fit(training, source)
    return lambda: next(steps)


def preset_job(name: str, device: torch.device, *, pieces: Pieces | None = None) -> Job:
    """A training of ours, as `compare_checkouts.py` and `ablation.py` time it."""
    workload = next(w for w in workloads(device) if w.preset == name)
    config = workload_config(workload, device)
    source = workload_source(workload, config, device)
    return training_job(ours(config), source, device, pieces=pieces)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How long a step takes.

    Attributes:
        workload: What was trained.
        dtype: What ours computes in.
        naive: Float32, contiguous, eager, every pair of `exact` written out.
        ours: As `mue train` does it.
        work: What was counted.
    """

    workload: Workload
    dtype: torch.dtype
    naive: Timing
    ours: Timing
    work: Work

    def summary(self, limits: Mapping[torch.dtype, Limits]) -> dict[str, Any]:
        """A row of `bench.json`: the floor is that of our precision."""
        floor = self.work.floor(limits[self.dtype], self.dtype.itemsize)
        return {
            "preset": self.workload.preset,
            "batch": self.workload.batch,
            "side": self.workload.side,
            "precision": str(self.dtype).removeprefix("torch."),
            "naive": self.naive.summary(),
            "ours": self.ours.summary(),
            "ratio": self.naive.median / self.ours.median,
            "bytes": self.work.bytes(self.dtype.itemsize),
            "operations": self.work.operations,
            "floor_ms": 1e3 * floor,
            "share": floor / self.ours.median,
        }


def measure_training(
    device: torch.device,
    chosen: Sequence[Workload],
    budget: Budget,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[StepTimes]:
    """Time each workload, naive and ours in turn."""
    found: list[StepTimes] = []
    for workload in chosen:
        config = workload_config(workload, device, seed)
        source = workload_source(workload, config, device)
        height, width = source.pair(torch.arange(1, device=device)).x.shape[-2:]
        jobs = {
            "naive": naive_job(config, source, device),
            "ours": training_job(ours(config), source, device),
        }
        show = partial(progress, f"{workload.preset}, batch {workload.batch}") if progress else None
        times = interleave(jobs, device, budget, show)
        work = count_step(config, (height, width))
        found.append(StepTimes(workload, precision(ours(config)), **times, work=work))
    return found
