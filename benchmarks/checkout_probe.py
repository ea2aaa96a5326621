"""What `compare_checkouts.py` runs in a process of each checkout.

    PYTHONPATH=CHECKOUT/src:CHECKOUT/benchmarks python -P checkout_probe.py answers INPUTS OUT
    PYTHONPATH=CHECKOUT/src:CHECKOUT/benchmarks python -P checkout_probe.py speed

It calls only what both checkouts have: `mue.load(name)`, its `propose` and its `modes`, and for
training the code with which each checkout measures itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

import mue

Step = Callable[[], object]
ANSWERS, CHUNK = 16, 8
MAX_ANSWERS = ("max_answers", "most")
"""What the largest k is called, now and before."""
ANSWER = ("y", "prob", "code", "rest")
MODE = ("y", "prob", "spread", "representative", "mode", "answer_code", "rest")
"""What is compared of answers and of modes, which are those at the calibrated cut."""
REPLY = "@reply"
"""Begins a line that the other process waits for; a compiler may print lines of its own."""


def answers(inputs: Path, out: Path) -> None:
    """Write what each model answers to the inputs that are kept under its name, and its modes."""
    for name, x in load_file(inputs).items():
        predictor = mue.load(name, device="cpu")
        total = next(getattr(predictor, n) for n in MAX_ANSWERS if hasattr(predictor, n))
        k, arrays = min(ANSWERS, total), dict[str, np.ndarray]()
        as_given = "normalized" in signature(predictor.propose).parameters
        options: dict[str, Any] = (
            {"normalized": True} if as_given else {}
        )  # before, arrays were never normalized
        for start in range(0, len(x), CHUNK):
            batch = x[start : start + CHUNK]
            found = predictor.propose(batch, k, **options)
            modes = predictor.modes(batch, k, **options)
            for kind, of, fields in (("answers", found, ANSWER), ("modes", modes, MODE)):
                values = {f"{kind} {n} {start}": getattr(of, n).numpy() for n in fields}
                arrays.update({key: np.ascontiguousarray(v) for key, v in values.items()})
        save_file(arrays, out / f"{name}.safetensors")


def training_step(preset: str) -> Step:
    """A function that takes one more step of the checkout's own training."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        from timing.training import preset_job
    except ImportError:  # until the measurement of speed left the package
        from mue.bench import setups, training  # pyright: ignore[reportMissingImports]

        course = next(c for c in training.courses(device) if c.preset == preset)
        config = training.course_config(course, device)
        source = training.course_source(course, config, device)
        return training.stepper(setups.ours(config), source, device)
    return preset_job(preset, device)


def answering_step(model: str) -> Step:
    """A function that asks for the answers to one image of 128 x 128."""
    predictor = mue.load(model)
    x = torch.rand(1, 1, 128, 128, generator=torch.Generator().manual_seed(0))
    x = x.to(next(predictor.network.parameters()).device)
    return lambda: predictor.propose(x, ANSWERS)


def seconds(step: Step, calls: int) -> float:
    """Of one call, in the mean of so many."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    start = perf_counter()
    for _ in range(calls):
        step()
    wait()
    return (perf_counter() - start) / calls


def serve(kinds: Mapping[str, Callable[[str], Step]]) -> None:
    """Answer lines of `KIND NAME CALLS` on stdin: prepare a step where it is new, and time it."""
    steps: dict[tuple[str, str], Step] = {}
    for line in sys.stdin:
        kind, name, calls = line.split()
        if (kind, name) not in steps:
            steps.clear()  # the one before is not asked for again
            steps[kind, name] = kinds[kind](name)
        print(REPLY, seconds(steps[kind, name], int(calls)), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "answers":
        answers(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        serve({"train": training_step, "answer": answering_step})
