"""Where the optional folder `kernels` is found, or not."""

from typing import TypeVar

from mue.training.state import Training

Built = TypeVar("Built")


def accelerated(built: Built) -> Built:
    """`mue.kernels.accelerate(built)`; without that folder, `built`, if its switches are not on."""
    try:
        from mue.kernels import accelerate
    except ModuleNotFoundError as error:
        if error.name != "mue.kernels":
            raise
        if isinstance(built, Training):
            for switch in ("kernels", "compile", "cuda_graph"):
                built.config.compute.resolve(switch, "mue.kernels is not installed")
        return built
    return accelerate(built)  # pyright: ignore[reportArgumentType, reportReturnType]
