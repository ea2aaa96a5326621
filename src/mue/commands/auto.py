"""`mue train auto`: the configuration that suits prepared data and the device."""

import dataclasses
import itertools
import statistics as numbers
import time
from pathlib import Path

from mue.acceleration import accelerated
from mue.config.auto import MINUTES, Choice, choose
from mue.config.presets import Baseline
from mue.config.schema import Config
from mue.data.build import build_source
from mue.data.prepared.open import open_prepared
from mue.data.prepared.statistics import statistics
from mue.errors import MueError
from mue.runtime.collectives import env_int
from mue.runtime.devices import Device, choose_device
from mue.training.batches import batch_threads
from mue.training.loop import fit
from mue.training.state import Training, seeded_learner

_WARM_UP, _TIMED = 3, 7  # steps


def auto(
    data: str | Path,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    baseline: Baseline | None = None,
    device: Device = "auto",
) -> Choice:
    """Choose a configuration for prepared data, with a reason for each choice.

    Args:
        data: Folder of prepared data.
        minutes: How long training may take: a step is timed, and as many are taken as fit. By
            default 5 on a CPU, and on a GPU the number of steps is fixed.
        steps: How many steps to take, in place of `minutes`.
        baseline: A baseline by the same settings, in place of our model.
        device: Where it will be trained.
    """
    where, several = choose_device(device), env_int("WORLD_SIZE", 1) > 1
    if minutes is not None and several:
        raise MueError(
            f"--minutes must be left out where several processes train, got {minutes:g}: each "
            "would measure another time; give --train.steps"
        )
    choice = choose(statistics(open_prepared(data)), "cuda" if where.type == "cuda" else "cpu")
    if baseline is not None:
        choice = choice.as_baseline(baseline)
    compute = dataclasses.replace(choice.config.compute, device=device)
    choice = Choice(dataclasses.replace(choice.config, compute=compute), choice.reasons)
    if steps is not None:
        return choice.with_steps(steps, f"{steps}, as asked")
    if minutes is None and (where.type == "cuda" or several):
        return choice
    return choice.within(MINUTES if minutes is None else minutes, _seconds(choice.config, data))


def _seconds(config: Config, data: str | Path) -> float:
    """How long a step takes: the median of a few. Compiling them would take longer."""
    compute = dataclasses.replace(config.compute, compile="off")
    config = dataclasses.replace(config, compute=compute)
    where = choose_device(config.compute.device)
    seed, resident = config.train.seed, config.compute.resident
    source = build_source(
        config.data, "train", seed=seed, device=where, data=data, resident=resident
    )
    training = accelerated(Training(config, where, learner=seeded_learner(config)), config.compute)
    at: list[float] = []
    with batch_threads(config, source):
        for step in itertools.islice(fit(training, source), _WARM_UP + _TIMED):
            step.terms.total.item()  # waits for the device
            at.append(time.perf_counter())
    return numbers.median(b - a for a, b in itertools.pairwise(at[_WARM_UP - 1 :]))
