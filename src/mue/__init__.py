"""Ranked answers with probabilities, for problems that have more than one right answer."""

import importlib
from typing import TYPE_CHECKING, Any

import mue.runtime.environment  # noqa: F401  # pyright: ignore[reportUnusedImport]  before torch is imported

if TYPE_CHECKING:
    from mue.commands.auto import auto
    from mue.commands.calibrate import calibrate
    from mue.commands.compare import compare
    from mue.commands.demo import demo
    from mue.commands.evaluate import evaluate
    from mue.commands.export import export
    from mue.commands.figure import figure
    from mue.commands.predict import predict
    from mue.commands.serve import serve
    from mue.commands.train import train
    from mue.config.presets import preset
    from mue.config.schema import Config
    from mue.data.source import Source
    from mue.errors import MueError
    from mue.inference.load import load
    from mue.inference.predictor import Predictor
    from mue.modes.ranked import Modes
    from mue.types import Hypotheses
    from mue.version import __version__

__all__ = [  # in the order in which they are used  # noqa: RUF022
    "preset",
    "auto",
    "train",
    "load",
    "predict",
    "evaluate",
    "compare",
    "calibrate",
    "figure",
    "export",
    "serve",
    "demo",
    "Config",
    "Predictor",
    "Hypotheses",
    "Modes",
    "Source",
    "MueError",
    "__version__",
]
_HOMES = {
    "preset": "config.presets",
    "load": "inference.load",
    "Config": "config.schema",
    "Predictor": "inference.predictor",
    "Hypotheses": "types",
    "Modes": "modes",
    "Source": "data.source",
    "MueError": "errors",
    "__version__": "version",
}
"""Where the public names are; the others are commands, each in a file of its name."""
_ROOMS = ("data", "metrics")


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used (PEP 562)."""
    if name in _ROOMS:
        return importlib.import_module(f"mue.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"mue.{_HOMES.get(name, f'commands.{name}')}")
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    """The public names, and what has been imported."""
    return sorted({*globals(), *__all__, *_ROOMS})
