"""How fast training and answering are, beside naive and beside the floor of counted work.

    make bench
    python benchmarks/speed.py [--only training] [--quick] [--profile] [--device cpu] [--out DIR]

Times ours and naive in turn in one run, prints a table of ratios, and writes `bench.json`, figures
and, with `--profile`, traces and `profile.json`.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress

from mue.atomic import write_atomic
from mue.devices import Device, choose_device, device_name
from mue.errors import MueError
from mue.inference.load import halves
from mue.plots.style import save_figure
from mue.training.checkpoint import commit
from mue.version import __version__
from timing import plots, profiler, tables
from timing.answering import (
    ANSWERS,
    AT,
    PRESETS,
    SIDE,
    SIDES,
    Answers,
    measure_answers,
    measure_sides,
)
from timing.floor import Limits
from timing.setups import naive, ours, precision, unrolled, words
from timing.timer import Patience, Watch, measure_limits
from timing.training import (
    Course,
    Steps,
    course_config,
    course_source,
    courses,
    measure_training,
    stepper,
)

Part = Literal["training", "answering"]
BENCH, PROFILE = "bench.json", "profile.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        courses: Trainings.
        presets: Networks whose answers are timed.
        ks: How many answers.
        side: Height and width of the image that k answers are given to.
        sides: Of the images that `at` answers are given to.
        at: As said.
        patience: With each measurement.
        steps: Of a profile.
        copy: Megabytes of the copy that measures the bandwidth; None is large enough.
        product: Side of the matrices that measure the peak; 0 is large enough.
    """

    courses: Sequence[Course]
    presets: Sequence[str] = PRESETS
    ks: Sequence[int] = ANSWERS
    side: int = SIDE
    sides: Sequence[int] = SIDES
    at: int = AT
    patience: Patience = dataclasses.field(default_factory=Patience)
    steps: int = 5
    copy: int | None = None
    product: int = 0


def plan(device: torch.device, *, quick: bool = False) -> Plan:
    """What is measured on a device: minutes, or with `quick` seconds."""
    some = courses(device, quick=quick)
    fast = device.type == "cuda"
    if quick:
        patience = Patience(warmup=5 if fast else 1, repeats=2, least=0.02)
        small = PRESETS[:2]
        return Plan(some, small, (1, 4, 16), sides=(64, 128), at=4, patience=patience, steps=2)
    if fast:
        return Plan(some, patience=Patience(warmup=10, repeats=9, least=0.05))
    return Plan(some, patience=Patience(warmup=2, repeats=7, least=0.1, most=8.0), steps=2)


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured.

    Attributes:
        content: What `bench.json` holds.
        profiles: The costs of a step of each course, where they were asked for.
        files: What was written.
    """

    content: dict[str, Any]
    profiles: dict[str, profiler.Profile]
    files: list[Path]


def bench(
    out: str | Path = "runs/bench",
    *,
    only: Part | None = None,
    quick: bool = False,
    profiled: bool = False,
    device: Device = "auto",
    seed: int = 0,
    what: Plan | None = None,
    watch: Watch | None = None,
) -> Bench:
    """Measure ours beside naive in one run, write it, and draw how costs grow.

    `only` leaves the other part out, `profiled` adds where the time of a step goes, `what` says how
    much is measured where `quick` does not.

    Raises:
        RunError: The device is not there.
    """
    where, target = choose_device(device), Path(out)
    target.mkdir(parents=True, exist_ok=True)  # what cannot be is known before it is measured
    what = plan(where, quick=quick) if what is None else what
    configs = [course_config(course, where, seed) for course in what.courses]
    kinds = {torch.float32, *(precision(ours(config)) for config in configs)}
    before = _limits(where, kinds, what)
    common: dict[str, Any] = {"seed": seed, "watch": watch}
    steps: list[Steps] = []
    answers: list[Answers] = []
    sides: list[Answers] = []
    if only != "answering":
        steps = measure_training(where, what.courses, what.patience, **common)
    if only != "training":
        some = where, what.presets
        answers = measure_answers(*some, what.ks, what.patience, side=what.side, **common)
        sides = measure_sides(*some, what.sides, what.patience, k=what.at, **common)
    after = _limits(where, kinds, what)
    limits = {kind: before[kind].best(after[kind]) for kind in before}
    content = about(where, limits, seed) | {"command": command(only, quick)}
    files = [target / BENCH]
    if steps:
        content["setups"] = {way.__name__: words(way(configs[0])) for way in (naive, ours)}
        content["training"] = [found.summary(limits) for found in steps]
    if answers:
        kind = torch.bfloat16 if halves(where) else torch.float32  # float16 has the same limits
        reach = limits[kind], kind.itemsize
        content["answering"] = [found.summary(*reach) for found in answers]
        content["sides"] = [found.summary(*reach) for found in sides]
        content["growth"] = growth(content["answering"], content["sides"])
        files += [
            save_figure(figure, target / f"{name}.png")
            for name, figure in drawings(content).items()
        ]
    write_atomic(target / BENCH, (dumps(content, indent=2) + "\n").encode())
    profiles: dict[str, profiler.Profile] = {}
    if profiled:
        for course in what.courses:
            profiles[course.preset] = _profile(course, where, limits, what.steps, target, seed)
            files += sorted(target.glob(f"{course.preset}-*{profiler.TRACE}"))
        rows = {name: _rows(found) for name, found in profiles.items()}
        files.append(target / PROFILE)
        whole = content | {"profile": rows}
        kept = {k: v for k, v in whole.items() if k not in ("training", "answering", "sides")}
        write_atomic(target / PROFILE, (dumps(kept, indent=2) + "\n").encode())
    return Bench(content, profiles, files)


def _limits(
    device: torch.device, kinds: Iterable[torch.dtype], what: Plan
) -> dict[torch.dtype, Limits]:
    """What the device can do now. Taken before and after the rest: others may be busy meanwhile."""
    return {
        kind: measure_limits(device, kind, megabytes=what.copy, side=what.product)
        for kind in sorted(kinds, key=str)
    }


def about(device: torch.device, limits: Mapping[torch.dtype, Limits], seed: int) -> dict[str, Any]:
    """What a measurement depends on beside what is measured."""
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
    answers: Sequence[Mapping[str, Any]], sides: Sequence[Mapping[str, Any]], upto: int = 16
) -> dict[str, dict[str, float]]:
    """The power of k (up to 16) and of the pixels with which the cost of ours grows: 1 is linear.

    From the first and the last point; a single point has no growth.
    """
    found: dict[str, dict[str, float]] = {"answers": {}, "pixels": {}}
    for row in answers:
        points = [(r["k"], r["ours"]["ms"]) for r in answers if r["preset"] == row["preset"]]
        _note(found["answers"], row["preset"], [p for p in points if p[0] <= upto])
    for row in sides:
        points = [(r["side"] ** 2, r["ours"]["ms"]) for r in sides if r["preset"] == row["preset"]]
        _note(found["pixels"], row["preset"], points)
    return found


def _note(found: dict[str, float], name: str, points: list[tuple[int, float]]) -> None:
    (x0, y0), (x1, y1) = min(points), max(points)
    if x1 > x0:
        found[name] = math.log(y1 / y0) / math.log(x1 / x0)


def drawings(content: Mapping[str, Any]) -> dict[str, Figure]:
    """How costs grow, with answers and with pixels, from what `bench.json` holds."""
    side, at = content["answering"][0]["side"], content["sides"][0]["k"]
    name = content["name"]
    title = f"answers to one {side}×{side} image, {name}"
    return {
        "answers": plots.draw_answers(content["answering"], title),
        "pixels": plots.draw_sides(content["sides"], f"{at} answers to one image, {name}"),
    }


def _profile(
    course: Course,
    device: torch.device,
    limits: Mapping[torch.dtype, Limits],
    steps: int,
    target: Path,
    seed: int,
) -> profiler.Profile:
    """The costs of a step of ours: by operator one by one, by kernel as it runs."""
    config = course_config(course, device, seed)
    source = course_source(course, config, device)
    kind = precision(ours(config))
    trace = target / f"{course.preset}-step-{profiler.TRACE}"
    profiler.record(stepper(ours(config), source, device), device, trace, steps)
    found = profiler.read(trace, limits[kind], steps, kind.itemsize)
    if device.type != "cuda":
        return found
    apart = target / f"{course.preset}-operators-{profiler.TRACE}"
    profiler.record(stepper(unrolled(config), source, device), device, apart, steps)
    by_operator = profiler.read(apart, limits[kind], steps, kind.itemsize)
    return profiler.Profile(by_operator.operators, found.kernels)


def _rows(found: profiler.Profile, most: int = 40) -> dict[str, Any]:
    return {
        "ms": 1e3 * sum(cost.seconds for cost in found.operators),
        "operators": [cost.summary() for cost in found.operators[:most]],
        "kernels": [cost.summary() for cost in found.kernels[:most]],
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
    """Measure speed: naive against ours in one run, beside the floor that counting implies.

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
    with Progress(console=Console(stderr=True), disable=json) as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            task = tasks[name] if name in tasks else tasks.setdefault(name, bar.add_task(name))
            bar.update(task, completed=done, total=total)

        found = bench(
            out, only=only, quick=quick, profiled=profile, device=device, seed=seed, watch=show
        )
    if json:
        print(dumps(found.content, indent=2))
        return
    tables.print_times(found.content)
    for name, costs in found.profiles.items():
        tables.print_costs(f"{name}: a step by operator", costs.operators)
        if costs.kernels:
            tables.print_costs(f"{name}: a step by kernel, as it runs", costs.kernels)
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
