"""How fast training and answering are, against naive and the floor of counted work.

    make bench [ARGS="--quick --device cpu"]
    python benchmarks/speed.py [--only training] [--quick] [--profile] [--device cpu] [--out DIR]

Times ours and naive in turn in one run, prints a table of ratios, and writes `bench.json`, figures
and, with `--profile`, traces and `profile.json`. `timing/floor.py` says how the floor is counted.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from matplotlib.figure import Figure
from rich import progress as rich_progress
from rich.console import Console

from mue.errors import MueError
from mue.inference.load import half_by_default
from mue.plots.style import save_figure
from mue.runs.folder import commit
from mue.runtime.atomic import write_atomic
from mue.runtime.devices import Device, choose_device, device_name
from mue.version import __version__
from timing import plots, tables
from timing.answering import ANSWERS, AT, PRESETS, SIDE, SIDES, measure_answers, measure_sides
from timing.floor import Limits
from timing.profiler import TRACE, Profile, profile
from timing.setups import description, eager, naive, ours, precision
from timing.timer import Budget, Progress, measure_limits
from timing.training import (
    Workload,
    measure_training,
    training_job,
    workload_config,
    workload_source,
    workloads,
)

Part = Literal["training", "answering"]
BENCH, PROFILE = "bench.json", "profile.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        workloads: Trainings.
        presets: Networks whose answers are timed.
        ks: How many answers.
        side: Height and width of the image that k answers are given to.
        sides: Of the images that `at` answers are given to.
        at: How many answers are given to images of several sides.
        budget: Of each measurement.
        steps: Of a profile.
        copy: Megabytes of the copy that measures the bandwidth; None is large enough.
        product: Side of the matrices that measure the peak; 0 is large enough.
    """

    workloads: Sequence[Workload]
    presets: Sequence[str] = PRESETS
    ks: Sequence[int] = ANSWERS
    side: int = SIDE
    sides: Sequence[int] = SIDES
    at: int = AT
    budget: Budget = field(default_factory=Budget)
    steps: int = 5
    copy: int | None = None
    product: int = 0


def default_plan(device: torch.device, *, quick: bool = False) -> Plan:
    """What is measured on a device: minutes, or with `quick` seconds."""
    chosen, gpu = workloads(device, quick=quick), device.type == "cuda"
    if quick:
        budget = Budget(warmup=5 if gpu else 1, repeats=2, min_seconds=0.02)
        small = PRESETS[:2]
        return Plan(chosen, small, (1, 4, 16), sides=(64, 128), at=4, budget=budget, steps=2)
    if gpu:
        return Plan(chosen, budget=Budget(warmup=10, repeats=9, min_seconds=0.05))
    budget = Budget(warmup=2, repeats=7, min_seconds=0.1, max_seconds=8.0)
    return Plan(chosen, budget=budget, steps=2)


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured.

    Attributes:
        content: What `bench.json` holds.
        profiles: The costs of a step of each workload, where they were asked for.
        files: What was written.
    """

    content: dict[str, Any]
    profiles: dict[str, Profile]
    files: list[Path]


def bench(
    out: str | Path = "runs/bench",
    *,
    only: Part | None = None,
    quick: bool = False,
    profiled: bool = False,
    device: Device = "auto",
    seed: int = 0,
    plan: Plan | None = None,
    progress: Progress | None = None,
) -> Bench:
    """Measure ours against naive in one run, write it, and plot how costs grow.

    `only` leaves the other part out, `profiled` adds where the time of a step goes, `plan` says how
    much is measured where `quick` does not.

    Raises:
        MueError: The device is not there.
    """
    where, target = choose_device(device), Path(out)
    target.mkdir(parents=True, exist_ok=True)  # fails before minutes are spent on measuring
    plan = default_plan(where, quick=quick) if plan is None else plan
    configs = [workload_config(workload, where, seed) for workload in plan.workloads]
    kinds = {torch.float32, *(precision(ours(config)) for config in configs)}
    before = _limits(where, kinds, plan)
    rest: dict[str, Any] = {"seed": seed, "progress": progress}
    steps, answers, sides = [], [], []
    if only != "answering":
        steps = measure_training(where, plan.workloads, plan.budget, **rest)
    if only != "training":
        presets = where, plan.presets
        answers = measure_answers(*presets, plan.ks, plan.budget, side=plan.side, **rest)
        sides = measure_sides(*presets, plan.sides, plan.budget, k=plan.at, **rest)
    after = _limits(where, kinds, plan)
    limits = {kind: before[kind].best(after[kind]) for kind in before}
    content = about(where, limits, seed) | {"command": command(only, quick)}
    files = [target / BENCH]
    if steps:
        content["setups"] = {way.__name__: description(way(configs[0])) for way in (naive, ours)}
        content["training"] = [found.summary(limits) for found in steps]
    if answers:
        # float16 has the limits of bfloat16.
        kind = torch.bfloat16 if half_by_default(where) else torch.float32
        content["answering"] = [found.summary(limits[kind], kind.itemsize) for found in answers]
        content["sides"] = [found.summary(limits[kind], kind.itemsize) for found in sides]
        content["growth"] = growth(content["answering"], content["sides"])
        files += [
            save_figure(figure, target / f"{name}.png")
            for name, figure in cost_figures(content).items()
        ]
    write_atomic(target / BENCH, (dumps(content, indent=2) + "\n").encode())
    profiles: dict[str, Profile] = {}
    if profiled:
        for workload in plan.workloads:
            profiles[workload.preset] = profile_step(workload, where, plan.steps, target, seed)
            files += sorted(target.glob(f"{workload.preset}-*{TRACE}"))
        rows = {name: _rows(found) for name, found in profiles.items()}
        files.append(target / PROFILE)
        write_atomic(target / PROFILE, (dumps({"profile": rows}, indent=2) + "\n").encode())
    return Bench(content, profiles, files)


def _limits(
    device: torch.device, kinds: Iterable[torch.dtype], plan: Plan
) -> dict[torch.dtype, Limits]:
    """Taken before and after the rest: another process may slow the device for a while."""
    return {
        kind: measure_limits(device, kind, megabytes=plan.copy, side=plan.product)
        for kind in sorted(kinds, key=str)
    }


def about(device: torch.device, limits: Mapping[torch.dtype, Limits], seed: int) -> dict[str, Any]:
    """What a measurement depends on besides what is measured."""
    return {
        "version": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "device": device.type,
        "name": device_name(device),
        "threads": torch.get_num_threads(),
        "seed": seed,
        "limits": {
            str(kind).removeprefix("torch."): dataclasses.asdict(limit)
            for kind, limit in limits.items()
        },
    }


def command(only: Part | None, quick: bool) -> str:
    """What to type for the same measurement."""
    options = [*(["--only", only] if only else []), *(["--quick"] if quick else [])]
    return " ".join(["python benchmarks/speed.py", *options])


def growth(
    answers: Sequence[Mapping[str, Any]], sides: Sequence[Mapping[str, Any]], max_k: int = 16
) -> dict[str, dict[str, float]]:
    """The power of k (up to 16) and of the pixels with which the cost of ours grows: 1 is linear.

    From the first and the last point; a single point has no growth.
    """
    found: dict[str, dict[str, float]] = {"answers": {}, "pixels": {}}
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in answers:
        if row["k"] <= max_k:
            points.setdefault(("answers", row["preset"]), []).append((row["k"], row["ours"]["ms"]))
    for row in sides:
        size = row["side"] ** 2
        points.setdefault(("pixels", row["preset"]), []).append((size, row["ours"]["ms"]))
    for (what, name), costs in points.items():
        (x0, y0), (x1, y1) = min(costs), max(costs)
        if x1 > x0:
            found[what][name] = math.log(y1 / y0) / math.log(x1 / x0)
    return found


def cost_figures(content: Mapping[str, Any]) -> dict[str, Figure]:
    """How costs grow, with answers and with pixels, from what `bench.json` holds."""
    side, k, name = content["answering"][0]["side"], content["sides"][0]["k"], content["name"]
    title = f"answers to one {side}×{side} image, {name}"
    return {
        "answers": plots.plot_answers(content["answering"], title),
        "pixels": plots.plot_sides(content["sides"], f"{k} answers to one image, {name}"),
    }


def profile_step(
    workload: Workload, device: torch.device, steps: int, target: Path, seed: int
) -> Profile:
    """The costs of a step of ours. On a GPU operators run eagerly, kernels as in a training."""
    config = workload_config(workload, device, seed)
    source = workload_source(workload, config, device)

    def run(way: str, job_config: Any) -> Profile:
        trace = target / f"{workload.preset}-{way}-{TRACE}"
        return profile(training_job(job_config, source, device), device, trace, steps)

    found = run("step", ours(config))
    if device.type != "cuda":
        return found
    by_operator = run("operators", eager(config))
    return Profile(by_operator.operators, found.kernels, by_operator.table)


def _rows(found: Profile, count: int = 40) -> dict[str, Any]:
    return {
        "ms": sum(cost.ms for cost in found.operators),
        "operators": [dataclasses.asdict(cost) for cost in found.operators[:count]],
        "kernels": [dataclasses.asdict(cost) for cost in found.kernels[:count]],
    }


def speed(
    only: Part | None = None,
    quick: bool = False,
    profile: bool = False,
    out: Path = Path("runs/bench"),
    seed: int = 0,
    json: bool = False,
    device: Device = "auto",
) -> None:
    """Measure speed: naive against ours in one run, with the floor that counting implies.

    Args:
        only: one part: steps of training, or answers
        quick: fewer and smaller, with less to rely on
        profile: also show where the time of a step goes, and write a trace of it
        out: folder for bench.json, the figures and the traces
        seed: of weights and inputs
        json: print what was measured alone, for machines
        device: where to compute
    """
    choose_device(device)  # before the progress bar appears
    with rich_progress.Progress(console=Console(stderr=True), disable=json) as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            task = tasks[name] if name in tasks else tasks.setdefault(name, bar.add_task(name))
            bar.update(task, completed=done, total=total)

        found = bench(
            out, only=only, quick=quick, profiled=profile, device=device, seed=seed, progress=show
        )
    if json:
        print(dumps(found.content, indent=2))
        return
    tables.print_times(found.content)
    for name, costs in found.profiles.items():
        print(f"\n{name}: the costliest operators\n{costs.table}")
    print(*(f"written  {path}" for path in found.files), sep="\n")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. Bad input is one sentence on stderr and exit code 2."""
    try:
        tyro.cli(speed, args=arguments, prog="speed.py")
    except (MueError, OSError) as error:
        print(f"speed.py: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
