"""Where the time of a step goes: a trace, and a table of its slowest operators."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from timing.floor import Limits, Operator, convolution, convolution_backward, product
from timing.timer import Job, synchronize

TRACE = "trace.json"
_WIDTH = {"float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "int": 4}
_FREE = {"view", "reshape", "expand", "permute", "transpose", "t", "slice", "select", "unsqueeze"}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one operator, on inputs of one shape, took of a step.

    Attributes:
        name: The operator, or the kernel.
        shapes: Of its inputs; empty where the trace does not know them.
        calls: In a step.
        seconds: In a step, without the operators that it called itself.
        bytes: Read and written by all calls, at the least; None where the shapes are unknown.
        operations: Of all calls.
        share: The least time that bytes and operations imply, as a share of the time taken.
    """

    name: str
    shapes: str
    calls: float
    seconds: float
    bytes: int | None
    operations: int
    share: float | None

    def summary(self) -> dict[str, Any]:
        """A row of `profile.json`."""
        return {
            "name": self.name,
            "shapes": self.shapes,
            "calls": self.calls,
            "ms": 1e3 * self.seconds,
            "bytes": self.bytes,
            "operations": self.operations,
            "share": self.share,
        }


@dataclass(frozen=True, slots=True)
class Profile:
    """The costs of a step, the highest first: by operator and, on an accelerator, by kernel."""

    operators: list[Cost]
    kernels: list[Cost] = field(default_factory=list[Cost])


def record(job: Job, device: torch.device, path: Path, steps: int, *, warmup: int = 3) -> None:
    """Run a job some times and write what the profiler saw, in the form of Chrome's tracing."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    for _ in range(warmup):
        job()
    synchronize(device)
    with torch.profiler.profile(
        activities=activities, record_shapes=True, acc_events=True
    ) as profiler:
        for _ in range(steps):
            job()
        synchronize(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(path))


def read(path: Path, limits: Limits, steps: int, width: int = 4) -> Profile:
    """The costs of a step, from a trace of several.

    `width` is the bytes of a number where the trace does not say: in lists of tensors.
    """
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]
    calls = [e for e in events if e.get("cat") == "cpu_op"]
    kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not kernels:
        return Profile(_costs(zip(calls, _own_times(calls), strict=True), limits, steps, width))
    spent: dict[int, float] = defaultdict(float)
    for kernel in kernels:
        spent[kernel["args"].get("External id", -1)] += kernel["dur"]
    timed = [(c, spent[i]) for c in calls if (i := c["args"].get("External id", -2)) in spent]
    named: list[tuple[dict[str, Any], float]] = [
        ({"name": spoken(k["name"]), "args": {}}, float(k["dur"])) for k in kernels
    ]
    return Profile(_costs(timed, limits, steps, width), _costs(named, limits, steps, width))


def spoken(name: str) -> str:
    """The name of a kernel as one would say it: without types and namespaces.

    A kernel for any function of numbers is told by that function.
    """
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    plain, _, inside = name.partition("<")
    plain = plain.partition("(")[0].rpartition("::")[2].strip()
    function = re.search(r"\w+Functor\w*|\w+_kernel_cuda|\w+Ops?\b", inside)
    return f"{plain} {function[0]}" if function else plain


def _own_times(calls: list[dict[str, Any]]) -> list[float]:
    """Microseconds of each call without those of the calls inside it."""
    own = [float(call["dur"]) for call in calls]
    threads: dict[int, list[int]] = defaultdict(list)
    for i in sorted(range(len(calls)), key=lambda i: (calls[i]["ts"], -calls[i]["dur"])):
        above = threads[calls[i]["tid"]]
        while above and calls[above[-1]]["ts"] + calls[above[-1]]["dur"] <= calls[i]["ts"]:
            above.pop()
        if above:
            own[above[-1]] -= calls[i]["dur"]
        above.append(i)
    return own


def _costs(
    timed: Iterable[tuple[dict[str, Any], float]], limits: Limits, steps: int, width: int
) -> list[Cost]:
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for call, microseconds in timed:
        shapes = call["args"].get("Input Dims", [])
        kinds = call["args"].get("Input type", [])
        key = (call["name"], json.dumps(shapes), json.dumps(kinds))
        groups[key].append(microseconds / 1e6)
    costs: list[Cost] = []
    for (name, dims, kinds), seconds in groups.items():
        shapes, total = json.loads(dims), sum(seconds)
        works = operators(name, shapes, json.loads(kinds), width)
        least = sum(o.floor(limits, 4) for o in works) * len(seconds)
        costs.append(
            Cost(
                name=name.removeprefix("aten::"),
                shapes=" ".join("x".join(map(str, s)) for s in _tensors(shapes)),
                calls=len(seconds) / steps,
                seconds=total / steps,
                bytes=round(sum(o.bytes(4) for o in works) * len(seconds) / steps)
                if works
                else None,
                operations=round(sum(o.operations for o in works) * len(seconds) / steps),
                share=least / total if works and total > 0 else None,
            )
        )
    return sorted(costs, key=lambda cost: -cost.seconds)


def operators(name: str, shapes: list[Any], kinds: list[str], width: int = 4) -> list[Operator]:
    """What an operator of a trace does at the least, by the shapes and types of its inputs.

    Convolutions keep height and width, as all of them here do. An operator that is no convolution
    and no product reads its inputs and writes one output, of the size of the largest of them. Of
    operators that are not torch's own, such as autograd functions, nothing is known.
    """
    short = name.removeprefix("aten::")
    given: list[tuple[list[int], int]] = []
    for shape, kind in zip(shapes, kinds, strict=False):
        if kind in _WIDTH or kind == "TensorList":
            given += [(s, _WIDTH.get(kind, width)) for s in _tensors([shape])]
    if not given or short in _FREE or not name.startswith(("aten::", "triton")):
        return []
    tensors, each = [s for s, _ in given], max(w for _, w in given)
    if short in ("convolution_backward", "_slow_conv2d_backward"):
        grad, x, weight = tensors[:3]
        found = convolution_backward(grad, x, weight)
    elif "conv" in short and len(tensors) > 1 and len(tensors[1]) == 4:
        x, weight = tensors[:2]
        found = [convolution(x, weight, [x[0], weight[0], *x[2:]])]
    elif short in ("mm", "bmm"):
        found = [product(*tensors[:2])]
    elif short in ("addmm", "baddbmm"):
        found = [product(*tensors[1:3])]
    else:
        read = sum(math.prod(s) * w for s, w in given)
        written = 0 if name.startswith("triton") else _written(short, tensors) * each
        return [Operator(short, read + written, width=1)]
    return [Operator(o.name, o.numbers, o.operations, each) for o in found]


def _written(short: str, tensors: list[list[int]]) -> int:
    """Numbers that an operator writes which is no convolution and no product."""
    sizes = [math.prod(s) for s in tensors]
    match short:
        case "cat":
            return sum(sizes)
        case "upsample_bilinear2d" | "avg_pool2d_backward":
            return 4 * sizes[-1]
        case "avg_pool2d" | "upsample_bilinear2d_backward":
            return sizes[0] // 4
        case _:
            return max(sizes)


def _tensors(shapes: Any) -> list[list[int]]:
    """The shapes of tensors, those in lists too; numbers have none."""
    found: list[list[int]] = []
    for shape in shapes:
        if shape and all(isinstance(n, int) for n in shape):
            found.append(shape)
        elif shape:
            found += _tensors(shape)
    return found
