"""The front door: names, and how long it takes to open."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import mue
import mue.data


def test_the_public_names_are_these():
    classes = {"Config", "Hypotheses", "MueError", "Predictor", "Source"}
    verbs = {"calibrate", "compare", "demo", "evaluate", "export", "figure", "predict", "serve"}
    public = classes | verbs | {"auto", "train", "load", "preset", "__version__"}
    assert all(hasattr(mue, name) for name in public)
    names = {name for name, value in vars(mue).items() if not isinstance(value, ModuleType)}
    assert {name for name in names if not name.startswith("_")} == public - {"__version__"}


def test_importing_mue_imports_neither_matplotlib_nor_pydicom():
    code = "import sys, mue; print({'matplotlib', 'pydicom'} & set(sys.modules))"
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


def test_torch_reads_the_environment_that_mue_has_set_before():
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    code = (
        "import sys, os\n"
        "class Watch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch':\n"
        "            print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('GOMP_SPINCOUNT'))\n"
        "sys.meta_path.insert(0, Watch())\n"
    )
    for order, seen in (("mue, torch", "PASSIVE 3000"), ("torch, mue", "None None")):
        run = subprocess.run(
            [sys.executable, "-c", f"{code}import {order}"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert run.stdout == f"{seen}\n"


def test_threads_of_openmp_spin_for_a_moment_and_then_sleep():
    """Threads that spin on take the core that others need; a choice of the user's stays."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    code = f"import mue, os; print(*(os.environ.get(name) for name in {names}))"
    for before, after in ((None, "PASSIVE 3000"), ("ACTIVE", "ACTIVE None")):
        environment = {k: v for k, v in os.environ.items() if k not in names}
        environment |= {"OMP_WAIT_POLICY": before} if before else {}
        run = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert run.stdout == f"{after}\n"
