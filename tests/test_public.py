"""The front door: names, and how long it takes to open."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import mue
import mue.data


def test_the_public_names_are_these():
    classes = {"Config", "Hypotheses", "Modes", "MueError", "Predictor", "Source"}
    verbs = {"calibrate", "compare", "demo", "evaluate", "export", "figure", "predict", "serve"}
    public = classes | verbs | {"auto", "train", "load", "preset", "__version__"}
    names: dict[str, object] = {}
    exec("from mue import *", names)
    names.pop("__builtins__")
    assert set(names) == set(mue.__all__) == public
    assert len(mue.__all__) == len(public)
    assert all(value is getattr(mue, name) for name, value in names.items())
    assert set(dir(mue)) >= public
    assert not hasattr(mue, "nothing")


@pytest.mark.parametrize("verb", [n for n in mue.__all__ if n.islower() and n.isalpha()])
def test_a_command_is_the_function_of_the_file_of_its_name(verb):
    if verb not in ("load", "preset"):
        assert getattr(mue, verb) is importlib.import_module(f"mue.commands.{verb}").__dict__[verb]


def test_a_module_is_hidden_by_no_function_of_its_name():
    """`import mue.modes.rule as rule` is the module, whatever was imported before."""
    optional = "mue.kernels", "mue.service.replicas", "mue.__main__"
    for found in pkgutil.walk_packages(mue.__path__, "mue."):
        if not found.name.startswith(optional):
            parent, _, name = found.name.rpartition(".")
            module = importlib.import_module(found.name)
            assert getattr(sys.modules[parent], name) is module, found.name


@pytest.mark.parametrize(
    "line",
    [
        "mue.train; mue.data.new; mue.metrics",
        "import mue.metrics; mue.evaluate; mue.load; mue.data.inspect",
        "import mue.evaluation.compare, mue.commands.compare; mue.compare.__name__",
        "import mue.config.auto, mue.commands.auto; mue.auto.__name__",
        "from mue.commands import train; import mue.training.loop; mue.train.__name__",
        "import mue.modes, mue.service; mue.serve.__name__; mue.Modes; mue.types",
    ],
)
def test_public_names_are_found_in_any_order_of_imports(line):
    run = [sys.executable, "-c", f"import mue; {line}"]
    assert subprocess.run(run, capture_output=True, text=True).stderr == ""


def test_importing_mue_imports_nothing_slow_and_loading_neither_matplotlib_nor_pydicom():
    code = "import sys, mue; print({'torch', 'numpy'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
    code = "import sys, mue; mue.load; print({'matplotlib', 'pydicom'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def test_a_model_is_loaded_without_the_compiler_of_torch():
    code = "import sys, mue; mue.load('guess-exact'); print({'torch._dynamo'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def test_the_verbs_on_data_are_found_in_mue_data():
    from mue.commands.import_lidc import import_lidc
    from mue.commands.inspect import inspect

    assert mue.data.import_lidc is import_lidc
    assert mue.data.inspect is inspect
    assert not hasattr(mue.data, "nothing")


@pytest.mark.parametrize("page", ["README.md", "docs/metrics.md", "examples/vector.py"])
def test_what_is_shown_imports_mue_before_torch(page):
    """OpenMP reads its environment as soon as torch is imported."""
    lines = (Path(__file__).parents[1] / page).read_text().splitlines()
    first = [line.split()[1] for line in lines if line.startswith(("import mue", "import torch"))]
    assert first[0] == "mue"
