"""Ranked answers with probabilities, for problems that have more than one right answer."""

import mue.runtime.environment  # noqa: F401  # pyright: ignore[reportUnusedImport]  before torch is imported
from mue.commands.auto import auto as auto
from mue.commands.calibrate import calibrate as calibrate
from mue.commands.compare import compare as compare
from mue.commands.demo import demo as demo
from mue.commands.evaluate import evaluate as evaluate
from mue.commands.export import export as export
from mue.commands.figure import figure as figure
from mue.commands.predict import predict as predict
from mue.commands.serve import serve as serve
from mue.commands.train import train as train
from mue.config.presets import preset as preset
from mue.config.schema import Config as Config
from mue.data.source import Source as Source
from mue.errors import MueError as MueError
from mue.inference.load import load as load
from mue.inference.predictor import Predictor as Predictor
from mue.types import Hypotheses as Hypotheses
from mue.version import __version__ as __version__
