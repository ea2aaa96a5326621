import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from mue import run
from mue.config import (
    CodebookConfig,
    ComputeConfig,
    Config,
    DataConfig,
    ModelConfig,
    ObjectiveConfig,
    TrainConfig,
)

torch.set_num_threads(1)  # the tensors here are tiny: threads would only wait for one another

Tiny = Callable[..., Config]


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    """Makes a configuration whose training takes milliseconds a step."""

    def make(
        method: Literal["vq", "exact"] = "vq",
        *,
        codebook: dict[str, Any] | None = None,
        **train: Any,
    ) -> Config:
        return Config(
            method=method,
            data=DataConfig(name="toy"),
            model=ModelConfig(levels=(4, 8), tail=(8,), widths=(4,)),
            codebook=CodebookConfig(**{"size": 6, "width": 3, "decay": 0.9, **(codebook or {})}),
            objective=ObjectiveConfig(reconstruction=0.1),
            train=TrainConfig(
                **{"steps": 12, "batch": 8, "lr": 1e-2, "save_every": 6, "log_every": 1, **train}
            ),
            compute=ComputeConfig(device="cpu"),
        )

    return make


@pytest.fixture(scope="session")
def trained(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as training leaves it. Read it; for anything else take `folder`."""
    return run.train(tiny("exact", average=0.9), tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run folder, to do with as a test likes."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))
