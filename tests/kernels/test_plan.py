import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mue.config.presets import preset
from mue.config.schema import ComputeConfig
from mue.kernels import plan as planning
from mue.kernels.plan import Pieces, Plan, plan

NOTHING = Pieces(**dict.fromkeys((f.name for f in dataclasses.fields(Pieces)), False))
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def planned(
    name: str = "guess", device: torch.device = CPU, *, steps: int = 6000, **compute: Any
) -> Plan:
    config = preset(name)
    train = dataclasses.replace(config.train, steps=steps)
    config = dataclasses.replace(config, train=train, compute=ComputeConfig(**compute))
    return plan(config, device)


@pytest.fixture
def gpu(monkeypatch):
    """A machine that seems to have a GPU that can do everything; none is asked to compute."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(planning.importlib.util, "find_spec", lambda _: object())
    shared_memory(monkeypatch, 227)


def shared_memory(monkeypatch: pytest.MonkeyPatch, kibibytes: int) -> None:
    found = SimpleNamespace(shared_memory_per_block_optin=kibibytes << 10)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)


@pytest.fixture
def compiler(monkeypatch):
    """A machine that seems to have a C++ compiler."""
    monkeypatch.setattr(planning.shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.mark.usefixtures("compiler")
def test_a_cpu_compiles_what_is_long_and_large():
    found = planned()
    assert found == Plan(bfloat16=False, pieces=dataclasses.replace(NOTHING, compiled=True))
    assert str(found) == "float32, compiled"
    short = planned(steps=100)
    assert short == Plan(bfloat16=False, pieces=NOTHING)
    assert str(short) == "float32"
    assert not planned("vector").pieces.compiled


@pytest.mark.usefixtures("gpu")
def test_a_gpu_does_all_that_pays():
    found = planned(device=CUDA)
    assert found == Plan(bfloat16=True, pieces=Pieces())
    assert str(found) == "bfloat16, Triton kernels, compiled, CUDA graph"


@pytest.mark.usefixtures("gpu")
def test_each_switch_switches():
    assert not planned(device=CUDA, bfloat16="off").bfloat16
    pieces = {"kernels": "blocks", "compile": "compiled", "cuda_graph": "cuda_graph"}
    for name, piece in pieces.items():
        switch: dict[str, Any] = {name: "off"}
        assert not getattr(planned(device=CUDA, **switch).pieces, piece)


@pytest.mark.usefixtures("gpu")
def test_what_is_not_done_is_said_in_a_line():
    assert planned(device=CUDA, steps=100).notes == (
        "compute.compile is off: below 2000 steps it takes longer than it saves",
    )
    assert planned("guess-exact", device=CUDA).notes == (
        "compute.kernels is off: the kernels are for residual blocks without normalization",
    )
    assert planned(device=CUDA, bfloat16="off").notes == (
        "compute.kernels is off: the kernels compute in bfloat16",
    )


@pytest.mark.usefixtures("gpu")
def test_a_smaller_gpu_goes_without_the_kernels(monkeypatch):
    shared_memory(monkeypatch, 99)
    found = planned(device=CUDA)
    assert not found.pieces.blocks
    (note,) = found.notes
    assert note.endswith("need 227 KiB of shared memory a block, and this GPU has 99")


@pytest.mark.usefixtures("gpu")
def test_a_missing_triton_is_said_or_refused(monkeypatch):
    monkeypatch.setattr(planning.importlib.util, "find_spec", lambda _: None)
    found = planned(device=CUDA)
    assert not found.pieces.blocks
    assert not found.pieces.compiled
    assert len(found.notes) == 2
    with pytest.raises(ValueError, match=r"compute.compile is on, and Triton is not installed"):
        planned(device=CUDA, compile="on")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("kernels", "the kernels need a CUDA device; take auto or off"),
        ("cuda_graph", "CUDA graphs need a CUDA device; take auto or off"),
    ],
)
def test_a_cpu_refuses_what_needs_a_gpu(name, reason):
    switch: dict[str, Any] = {name: "on"}
    with pytest.raises(ValueError, match=f"compute.{name} is on, and {reason}"):
        planned(**switch)


def test_a_cpu_without_a_compiler_refuses_to_compile(monkeypatch):
    monkeypatch.setattr(planning.shutil, "which", lambda _: None)
    with pytest.raises(ValueError, match=r"there is no C\+\+ compiler, which torch.compile needs"):
        planned(compile="on")
    assert not planned().pieces.compiled
    assert planned().notes == (
        "compute.compile is off: there is no C++ compiler, which torch.compile needs on a CPU",
    )
    assert planned("vector").notes == ()


@pytest.mark.usefixtures("gpu")
def test_several_processes_capture_no_graph(monkeypatch):
    monkeypatch.setattr(planning.collectives, "world", lambda: 2)
    found = planned(device=CUDA)
    assert not found.pieces.cuda_graph
    assert found.notes == (
        "compute.cuda_graph is off: several processes communicate within a step",
    )


@pytest.mark.usefixtures("gpu")
def test_activations_that_are_computed_again_need_the_plain_blocks():
    assert not planned(device=CUDA, checkpointing=True).pieces.blocks


@pytest.mark.usefixtures("gpu")
def test_streams_and_the_compiled_optimizer_go_with_what_they_serve():
    assert not planned(device=CUDA, kernels="off").pieces.weight_gradient_streams
    assert not planned(device=CUDA, kernels="off").pieces.posterior_stream
    assert not planned(device=CUDA, cuda_graph="off").pieces.posterior_stream
    assert not planned(device=CUDA, kernels="off").pieces.compiled_optimizer
    assert not planned(device=CUDA, compile="off").pieces.compiled_optimizer


def test_pieces_of_both_are_left():
    both = Pieces(blocks=False) & Pieces(compiled=False)
    assert both == Pieces(blocks=False, compiled=False)
