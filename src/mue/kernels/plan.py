"""Which pieces of the acceleration a training takes on its device, and why not others."""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
from dataclasses import dataclass

import torch

from mue.config.schema import Config
from mue.runtime import collectives
from mue.training.state import use_bfloat16

COMPILE_PAYS = {"cpu": 6000, "cuda": 2000}
"""Steps below which compiling a step takes longer than it saves, by the type of the device."""
SHARED_KIB = 227
"""KiB of shared memory per block that the kernels are made for: that of an H100."""

_NO_COMPILER = "there is no C++ compiler, which torch.compile needs on a CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """What can be turned off, alone, to see what it gains.

    Attributes:
        blocks: Residual blocks without normalization as Triton kernels.
        weight_gradient_streams: Their weight gradients on side streams of the backward pass.
        posterior_stream: θ and φ of `vq` on two streams.
        compiled: The networks, or what stands between the kernels, by torch.compile.
        group_norm: A form of group normalization that preserves channels_last when compiled.
        compiled_optimizer: With `blocks`, the optimizer step by torch.compile.
        cuda_graph: The whole step as one CUDA graph.
    """

    blocks: bool = True
    weight_gradient_streams: bool = True
    posterior_stream: bool = True
    compiled: bool = True
    group_norm: bool = True
    compiled_optimizer: bool = True
    cuda_graph: bool = True

    def __and__(self, other: Pieces) -> Pieces:
        """The pieces that are in both."""
        names = [f.name for f in dataclasses.fields(self)]
        return Pieces(**{n: getattr(self, n) and getattr(other, n) for n in names})


@dataclass(frozen=True, slots=True)
class Plan:
    """How a step of training is computed.

    Attributes:
        bfloat16: Convolutions and matrix products in bfloat16.
        pieces: What is accelerated.
        notes: A line for each switch that is usually on for this device and is not.
    """

    bfloat16: bool
    pieces: Pieces
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As it is shown when a training starts."""
        parts = {
            "Triton kernels": self.pieces.blocks,
            "compiled": self.pieces.compiled,
            "CUDA graph": self.pieces.cuda_graph,
        }
        precision = "bfloat16" if self.bfloat16 else "float32"
        return ", ".join([precision, *(name for name, on in parts.items() if on)])


def plan(config: Config, device: torch.device) -> Plan:
    """Decide what is left to be decided (`auto`), and refuse what cannot be had.

    Raises:
        MueError: A switch is on, and this machine or this model cannot do it.
    """
    notes: list[str] = []
    cuda = device.type == "cuda"

    def on(switch: str, obstacle: str | None, *, default: bool = True) -> bool:
        unexpected = cuda or (default and obstacle == _NO_COMPILER)
        if getattr(config.compute, switch) == "auto" and obstacle and unexpected:
            notes.append(f"compute.{switch} is off: {obstacle}")
        return config.compute.resolve(switch, obstacle, default=default)

    bfloat16 = use_bfloat16(config, device)
    blocks = on("kernels", _no_kernels(config, device, bfloat16=bfloat16))
    large = cuda or config.model.backbone == "unet"
    compiled = on("compile", _no_compile(config, device), default=large)
    graph = on("cuda_graph", _no_graph(device))
    pieces = Pieces(
        blocks=blocks,
        weight_gradient_streams=blocks and collectives.world() == 1,  # others wait for autograd's
        posterior_stream=blocks and graph and config.method == "vq",
        compiled=compiled,
        group_norm=compiled and cuda,
        compiled_optimizer=compiled and blocks,
        cuda_graph=graph,
    )
    return Plan(bfloat16, pieces, tuple(notes))


def first_line(error: Exception) -> str:
    """What went wrong, for a line that says what is left out because of it."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


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
    enough = COMPILE_PAYS.get(device.type, 0)
    if config.compute.compile == "auto" and config.train.steps < enough:
        return f"below {enough} steps it takes longer than it saves"
    if device.type == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        return _NO_COMPILER
    return None


def _no_graph(device: torch.device) -> str | None:
    if device.type != "cuda":
        return "CUDA graphs need a CUDA device"
    if collectives.world() > 1:
        return "several processes communicate within a step"
    return None
