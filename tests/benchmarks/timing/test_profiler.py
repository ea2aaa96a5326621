import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from timing.floor import Limits
from timing.profiler import operators, read, record, spoken

LIMITS = Limits(bandwidth=1e9, peak=1e9)


def call(name, ts, dur, dims=(), kinds=(), *, cat="cpu_op", id_=0) -> dict:
    args = {"Input Dims": list(dims), "Input type": list(kinds), "External id": id_}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 1, "args": args}


def trace(path: Path, *events: dict) -> Path:
    path.write_text(json.dumps({"traceEvents": list(events)}))
    return path


def test_time_inside_an_operator_is_not_counted_twice(tmp_path):
    found = read(
        trace(
            tmp_path / "t.json",
            call("aten::conv2d", 0, 100),
            call("aten::mkldnn_convolution", 10, 80),
            call("aten::empty", 20, 5),
            call("aten::relu", 100, 30),
        ),
        LIMITS,
        steps=2,
    )
    spent = {cost.name: round(2e6 * cost.seconds) for cost in found.operators}
    assert spent == {"conv2d": 20, "mkldnn_convolution": 75, "empty": 5, "relu": 30}
    assert [c.name for c in found.operators][:2] == ["mkldnn_convolution", "relu"]
    assert found.operators[0].calls == 0.5
    assert found.kernels == []


def test_on_an_accelerator_an_operator_takes_the_time_of_its_kernels(tmp_path):
    matrix = [[8, 8], [8, 8]]
    found = read(
        trace(
            tmp_path / "t.json",
            call("aten::mm", 0, 5, matrix, ["c10::BFloat16"] * 2, id_=7),
            call("gemm", 50, 100, cat="kernel", id_=7),
            call("split", 150, 20, cat="kernel", id_=7),
            call("elsewhere", 170, 9, cat="kernel", id_=8),
        ),
        LIMITS,
        steps=1,
    )
    (cost,) = found.operators
    assert (cost.name, cost.shapes, cost.calls) == ("mm", "8x8 8x8", 1)
    assert cost.seconds == pytest.approx(120e-6)
    assert (cost.bytes, cost.operations) == (3 * 64 * 2, 2 * 8**3)
    assert cost.share == pytest.approx(1024e-9 / 120e-6)
    assert [k.name for k in found.kernels] == ["gemm", "split", "elsewhere"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("convolve", "convolve"),
        ("void at::native::(anonymous namespace)::softmax<float>(int)", "softmax"),
        ("void at::native::vec<4, at::native::FillFunctor<float>, x>(int)", "vec FillFunctor"),
        (
            "void at::native::any<2, at::native::direct_copy_kernel_cuda(y)>",
            "any direct_copy_kernel_cuda",
        ),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
    ],
)
def test_a_kernel_is_called_by_its_name_without_types(name, said):
    assert spoken(name) == said


@pytest.mark.parametrize(
    ("name", "shapes", "kinds", "moved", "computed"),
    [
        (
            "aten::cudnn_convolution",
            [[2, 3, 8, 8], [5, 3, 3, 3], []],
            ["float", "float", "Bool"],
            4 * (384 + 135 + 640),
            2 * 640 * 27,
        ),
        (
            "aten::convolution_backward",
            [[2, 5, 8, 8], [2, 3, 8, 8], [5, 3, 3, 3]],
            ["c10::BFloat16"] * 3,
            2 * 2 * (384 + 135 + 640),
            2 * 2 * 640 * 27,
        ),
        ("aten::addmm", [[4], [3, 6], [6, 4]], ["float"] * 3, 4 * (18 + 24 + 12), 2 * 3 * 6 * 4),
        ("aten::relu", [[10]], ["float"], 80, 0),
        ("aten::cat", [[[1, 10], [1, 6]], []], ["TensorList", "Scalar"], 2 * 64, 0),
        ("aten::upsample_bilinear2d", [[1, 1, 2, 2]], ["float"], 16 + 64, 0),
        ("aten::avg_pool2d", [[1, 1, 4, 4]], ["float"], 64 + 16, 0),
        ("triton_poi_fused_add_0", [[10], [10], []], ["float", "float", "Scalar"], 80, 0),
        ("_Residual", [[2, 3, 8, 8], [5, 3, 3, 3]], ["float"] * 2, 0, 0),
        ("aten::view", [[10]], ["float"], 0, 0),
        ("aten::empty", [[]], [""], 0, 0),
    ],
)
def test_bytes_and_operations_follow_from_the_shapes(name, shapes, kinds, moved, computed):
    found = operators(name, shapes, kinds)
    assert sum(o.bytes(4) for o in found) == moved
    assert sum(o.operations for o in found) == computed


def test_what_torch_recorded_can_be_read(tmp_path):
    x, weight = torch.ones(1, 3, 8, 8), torch.ones(5, 3, 3, 3, requires_grad=True)

    def job() -> None:
        F.conv2d(x, weight, padding=1).sum().backward()

    record(job, torch.device("cpu"), tmp_path / "new" / "trace.json", 2, warmup=1)
    found = read(tmp_path / "new" / "trace.json", LIMITS, 2)
    forward = [c for c in found.operators if c.operations == 2 * 5 * 64 * 27]
    assert forward
    assert all(c.calls == 1 for c in forward)
