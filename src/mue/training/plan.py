"""What the switches of `ComputeConfig` come to on a device."""

import torch

from mue.config.schema import Config
from mue.errors import MueError


def use_bfloat16(config: Config, device: torch.device) -> bool:
    """Whether convolutions and matrix products are computed in bfloat16: on a GPU, if it can."""
    cuda = device.type == "cuda"
    obstacle = None
    if cuda and not torch.cuda.is_bf16_supported():
        obstacle = "this GPU cannot compute in bfloat16"
    return resolve(config, "bfloat16", obstacle, default=cuda)


def resolve(config: Config, switch: str, obstacle: str | None, *, default: bool = True) -> bool:
    """Whether a switch is on. Where there is an obstacle, `auto` is off and `on` is refused."""
    wish = getattr(config.compute, switch)
    if wish == "on" and obstacle:
        raise MueError(f"compute.{switch} is on, and {obstacle}; take auto or off")
    return wish == "on" or (wish == "auto" and not obstacle and default)
