"""The commands: the words of each, and the public function that they call."""

from collections.abc import Callable
from typing import Any

from mue.commands import train
from mue.commands.calibrate import calibrate
from mue.commands.compare import compare
from mue.commands.demo import demo
from mue.commands.evaluate import evaluate
from mue.commands.export import export
from mue.commands.export_folder import export_folder
from mue.commands.figure import figure
from mue.commands.import_folder import import_folder
from mue.commands.import_lidc import import_lidc
from mue.commands.inspect import inspect
from mue.commands.new import new
from mue.commands.predict import predict
from mue.commands.serve import serve

COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "data new": new,
    "data import folder": import_folder,
    "data import lidc": import_lidc,
    "data inspect": inspect,
    "data export": export_folder,
    "train": train.train,
    "evaluate": evaluate,
    "predict": predict,
    "figure": figure,
    "compare": compare,
    "calibrate": calibrate,
    "export": export,
    "serve": serve,
}
