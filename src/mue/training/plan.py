"""What the switches of `ComputeConfig` come to on this machine, and why."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass

import torch

from mue import collectives
from mue.config.schema import Config
from mue.errors import MueError
from mue.nn.blocks import SHARED_KIB

COMPILE_PAYS = 2000
"""Steps below which fusing a step takes longer than it saves."""

_NO_COMPILER = "there is no C++ compiler, which torch.compile needs on a CPU"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a step of training is computed.

    Attributes:
        bfloat16: Convolutions and products in bfloat16.
        kernels: Residual blocks by the kernels of `mue.kernels.fused`.
        compile: The networks fused by torch.compile.
        cuda_graph: The whole step captured as a CUDA graph.
        notes: A line for each of them that would be usual on this device and is not done.
    """

    bfloat16: bool
    kernels: bool
    compile: bool
    cuda_graph: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As it is shown when a training starts."""
        said = {
            "Triton kernels": self.kernels,
            "compiled": self.compile,
            "one graph a step": self.cuda_graph,
        }
        precision = "bfloat16" if self.bfloat16 else "float32"
        return ", ".join([precision, *(name for name, on in said.items() if on)])


def plan(config: Config, device: torch.device) -> Plan:
    """Decide what is left to be decided (`auto`), and refuse what cannot be had.

    Raises:
        ValueError: A switch is on, and this machine or this model cannot do it.
    """
    notes: list[str] = []
    cuda = device.type == "cuda"

    def on(name: str, obstacle: str | None, *, usual: bool = True) -> bool:
        wish = getattr(config.compute, name)
        if wish == "on" and obstacle:
            raise MueError(f"compute.{name} is on, and {obstacle}; take auto or off")
        if wish == "auto" and obstacle and (cuda or (usual and obstacle == _NO_COMPILER)):
            notes.append(f"compute.{name} is off: {obstacle}")
        return wish == "on" or (wish == "auto" and not obstacle and usual)

    bfloat16 = on("bfloat16", _no_bfloat16(device), usual=cuda)
    kernels = on("kernels", _no_kernels(config, device, bfloat16=bfloat16))
    large = cuda or config.model.backbone == "unet"
    compiles = on("compile", _no_compile(config, device), usual=large)
    cuda_graph = on("cuda_graph", _no_graph(device))
    return Plan(bfloat16, kernels, compiles, cuda_graph, tuple(notes))


def reason(error: Exception) -> str:
    """What went wrong, for a line that says what is left out because of it."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _no_bfloat16(device: torch.device) -> str | None:
    if device.type == "cuda" and not torch.cuda.is_bf16_supported():
        return "this GPU cannot compute in bfloat16"
    return None


def _no_kernels(config: Config, device: torch.device, *, bfloat16: bool) -> str | None:
    if device.type != "cuda":
        return "the kernels need a CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if config.model.backbone != "unet" or config.model.norm != "none":
        return "the kernels are for residual blocks without normalization"
    if config.compute.checkpointing:
        return "compute.checkpointing needs the blocks of PyTorch"
    shared = torch.cuda.get_device_properties(device).shared_memory_per_block_optin >> 10
    if shared < SHARED_KIB:
        return (
            f"the kernels need {SHARED_KIB} KiB of shared memory a block, and this GPU has {shared}"
        )
    return None if bfloat16 else "the kernels compute in bfloat16"


def _no_compile(config: Config, device: torch.device) -> str | None:
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        return "Triton is not installed, which torch.compile needs"
    if config.compute.compile == "auto" and config.train.steps < COMPILE_PAYS:
        return f"below {COMPILE_PAYS} steps it takes longer than it saves"
    if device.type == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        return _NO_COMPILER
    return None


def _no_graph(device: torch.device) -> str | None:
    if device.type != "cuda":
        return "CUDA graphs need a CUDA device"
    if collectives.world() > 1:
        return "several processes meet within a step"
    return None
