"""Ranked answers with probabilities, for problems that have more than one right answer."""

from mue.commands.run import compare as compare
from mue.commands.run import demo as demo
from mue.commands.run import export as export
from mue.commands.run import figure as figure
from mue.commands.run import predict as predict
from mue.commands.train import train as train
from mue.config.presets import preset as preset
from mue.config.schema import Config as Config
from mue.evaluation.known_modes import evaluate_modes as evaluate_modes
from mue.inference.load import load as load
from mue.inference.predictor import Predictor as Predictor
from mue.types import Hypotheses as Hypotheses
from mue.version import __version__ as __version__

evaluate = evaluate_modes
