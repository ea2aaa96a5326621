"""Steps of training: the networks of the paper, naive and ours in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mue.config.presets import preset
from mue.config.schema import Config
from mue.data.build import build_source
from mue.data.source import Source
from mue.training.loop import Training, fit
from timing.floor import Limits, Work, count_step
from timing.noise import noise
from timing.setups import naive, ours, precision
from timing.timer import Job, Patience, Timing, Watch, interleave
from timing.written_out import write_out_

ENDLESS = 1_000_000
"""Steps that no measurement comes to the end of."""


@dataclass(frozen=True, slots=True)
class Course:
    """A training to be timed.

    Attributes:
        preset: The network and the method.
        batch: Inputs in a step.
        side: Height and width of slices; None where the data say it.
    """

    preset: str
    batch: int
    side: int | None = None


def courses(device: torch.device, *, quick: bool = False) -> list[Course]:
    """What is trained on a device. Two cores take smaller batches, or nobody would wait."""
    games, slices = (256, 64) if device.type == "cuda" else (8, 1) if quick else (32, 4)
    return [
        Course("guess", games),
        Course("lidc", slices, 128),
        Course("lidc-exact", slices, 128),
    ]


def course_config(course: Course, device: torch.device, seed: int = 0) -> Config:
    """The preset with that batch. All terms of the objective are on from the first step."""
    config = preset(course.preset)
    return replace(
        config,
        objective=replace(config.objective, prior_from=0.0),
        train=replace(config.train, batch=course.batch, steps=ENDLESS, seed=seed),
        compute=replace(config.compute, device=device.type),
    )


def course_source(course: Course, config: Config, device: torch.device) -> Source:
    """The data of a course: made up where the preset learns from slices."""
    if course.side is not None and config.data.name == "slices":
        return noise(config.data, course.side, device, seed=config.train.seed)
    return build_source(config.data, "train", seed=config.train.seed, device=device)


def stepper(config: Config, source: Source, device: torch.device, *, plain: bool = False) -> Job:
    """A function that takes one more step each time it is called; `plain` writes all out."""
    training = Training(config, device)
    if plain:
        write_out_(training)
    training.step = 1  # the code book needs no statistics of encodings for its time to be taken
    steps = fit(training, source)
    return lambda: next(steps)


@dataclass(frozen=True, slots=True)
class Steps:
    """How long a step takes.

    Attributes:
        course: What was trained.
        dtype: What ours computes in.
        naive: Float32, contiguous, one operator after the other, every pair written out.
        ours: As `mue train` does it.
        work: What was counted.
    """

    course: Course
    dtype: torch.dtype
    naive: Timing
    ours: Timing
    work: Work

    def summary(self, limits: Mapping[torch.dtype, Limits]) -> dict[str, Any]:
        """A row of `bench.json`: the floor is that of our precision."""
        floor = self.work.floor(limits[self.dtype], self.dtype.itemsize)
        return {
            "preset": self.course.preset,
            "batch": self.course.batch,
            "side": self.course.side,
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
    some: Sequence[Course],
    patience: Patience,
    *,
    seed: int = 0,
    watch: Watch | None = None,
) -> list[Steps]:
    """Time each course, naive and ours in turn."""
    found: list[Steps] = []
    for course in some:
        config = course_config(course, device, seed)
        source = course_source(course, config, device)
        pair = source.pair(torch.arange(1, device=device))
        height, width = pair.x.shape[-2:]
        dtype = precision(ours(config))
        jobs = {
            "naive": stepper(naive(config), source, device, plain=True),
            "ours": stepper(ours(config), source, device),
        }
        name = f"{course.preset}, batch {course.batch}"

        def tell(done: int, total: int, name: str = name) -> None:
            if watch is not None:
                watch(name, done, total)

        tell(0, patience.repeats)
        times = interleave(jobs, device, patience, tell)
        work = count_step(config, (height, width))
        found.append(Steps(course, dtype, times["naive"], times["ours"], work))
    return found
