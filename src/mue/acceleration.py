"""Where the optional folder `kernels` is found, or not."""

from __future__ import annotations

from typing import TypeVar

from mue.config.schema import Config
from mue.errors import MueError

Built = TypeVar("Built")

_SWITCHES = ("kernels", "compile", "cuda_graph")


def accelerated(built: Built) -> Built:
    """`mue.kernels.accelerate(built)`; without that folder, `built` as it is.

    Raises:
        MueError: The configuration insists on what only the folder has.
    """
    try:
        from mue.kernels import accelerate
    except ModuleNotFoundError as error:
        if error.name != "mue.kernels":
            raise
        config: Config = getattr(built, "config")  # noqa: B009
        for switch in _SWITCHES:
            if getattr(config.compute, switch) == "on":
                raise MueError(
                    f"compute.{switch} is on, and mue.kernels is not installed; take auto or off"
                ) from None
        return built
    return accelerate(built)  # pyright: ignore[reportArgumentType, reportReturnType]
