"""Ranked answers with probabilities, for problems that have more than one right answer."""

from mue.config import Config as Config
from mue.config import preset as preset
from mue.evaluate import evaluate as evaluate
from mue.predict import Predictor as Predictor
from mue.predict import load as load
from mue.run import compare as compare
from mue.run import demo as demo
from mue.run import export as export
from mue.run import figure as figure
from mue.run import predict as predict
from mue.run import train as train
from mue.types import Hypotheses as Hypotheses
from mue.version import __version__ as __version__
