"""The optional folder `kernels`, and a package without it."""

import sys
from dataclasses import replace
from types import ModuleType

import pytest

from mue.acceleration import accelerated
from mue.config.schema import ComputeConfig
from mue.errors import MueError


def test_what_the_folder_makes_of_it_is_returned(monkeypatch):
    folder = ModuleType("mue.kernels")
    folder.accelerate = lambda built: (built, "faster")  # pyright: ignore
    monkeypatch.setitem(sys.modules, "mue.kernels", folder)
    assert accelerated("a predictor") == ("a predictor", "faster")


def test_without_the_folder_it_stays_as_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "mue.kernels", None)
    built = object()
    assert accelerated(built) is built
    assert accelerated(built, ComputeConfig(compile="off")) is built


@pytest.mark.parametrize("switch", ["kernels", "compile", "cuda_graph"])
def test_without_the_folder_what_only_it_has_is_refused(monkeypatch, switch):
    monkeypatch.setitem(sys.modules, "mue.kernels", None)
    words = rf"compute\.{switch} is on, and mue.kernels is not installed; take auto or off"
    with pytest.raises(MueError, match=words):
        accelerated(object(), replace(ComputeConfig(), **{switch: "on"}))


def test_a_module_that_the_folder_needs_and_lacks_is_not_hidden(monkeypatch):
    monkeypatch.delitem(sys.modules, "mue.kernels", raising=False)

    class Lacking:
        def find_spec(self, name, *_):
            if name == "mue.kernels":
                raise ModuleNotFoundError("No module named 'triton'", name="triton")

    monkeypatch.setattr(sys, "meta_path", [Lacking(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match="triton"):
        accelerated(object())
