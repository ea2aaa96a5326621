"""The names of `mue.metrics`."""

import inspect
from pathlib import Path

import mue.metrics

HOME = Path(mue.metrics.__file__).parent


def test_every_name_is_there_and_none_is_that_of_a_module():
    names = mue.metrics.__all__
    assert names == sorted(names)
    modules = {path.stem for path in HOME.glob("*.py")}
    for name in names:
        assert hasattr(mue.metrics, name), name
        assert name not in modules, f"{name} is a function and a module"


def test_every_metric_of_masks_is_at_hand():
    for module in ("overlap", "energy", "matching", "calibration"):
        content = vars(__import__(f"mue.metrics.{module}", fromlist=[module]))
        of_masks = [
            name
            for name, value in content.items()
            if inspect.isfunction(value)
            and value.__module__ == f"mue.metrics.{module}"
            and {"s", "ys"} & set(inspect.signature(value).parameters)
            and not name.startswith("_")
        ]
        assert set(of_masks) <= set(mue.metrics.__all__), module
