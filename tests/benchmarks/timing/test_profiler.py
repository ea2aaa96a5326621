import json

import torch
import torch.nn.functional as F

from timing.profiler import profile


def test_operators_are_averaged_over_steps_by_shape_and_a_trace_is_written(tmp_path):
    x, weight = torch.ones(1, 3, 8, 8), torch.ones(5, 3, 3, 3, requires_grad=True)

    def job() -> None:
        F.conv2d(x, weight, padding=1).sum().backward()

    trace = tmp_path / "new" / "trace.json"
    found = profile(job, torch.device("cpu"), trace, 2, warmup=1)
    assert json.loads(trace.read_text())["traceEvents"]
    (forward,) = (c for c in found.operators if c.name == "aten::conv2d")
    assert forward.shapes.startswith("1x3x8x8 5x3x3x3")
    assert forward.calls == 1
    taken = [c.ms for c in found.operators]
    assert taken == sorted(taken, reverse=True)
    assert taken[0] > 0
    assert found.kernels == []
    assert "Self CPU" in found.table


def test_time_inside_an_operator_is_not_counted_twice(tmp_path):
    a = torch.ones(256, 256)
    layer = torch.nn.Linear(256, 256)
    found = profile(lambda: layer(a), torch.device("cpu"), tmp_path / "trace.json", 5)
    ms = {c.name: c.ms for c in found.operators}
    assert ms["aten::addmm"] > ms["aten::linear"]
