"""Where the optional folder `kernels` is found, or not."""

from typing import TypeVar

from mue.config.schema import ComputeConfig

Built = TypeVar("Built")


def accelerated(built: Built, compute: ComputeConfig | None = None) -> Built:
    """`mue.kernels.accelerate(built)`, or `built` where that folder is missing.

    Then no switch of `compute` must be on: a predictor has none.
    """
    try:
        from mue.kernels import accelerate
    except ModuleNotFoundError as error:
        if error.name != "mue.kernels":
            raise
        if compute is not None:
            for switch in ("kernels", "compile", "cuda_graph"):
                compute.resolve(switch, "mue.kernels is not installed")
        return built
    return accelerate(built)  # pyright: ignore[reportArgumentType, reportReturnType]
