"""Imports go one way: a module may import only from the layers above its own."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "mue"
LAYERS = [
    {"version", "errors"},
    {"runtime"},
    {"metrics"},
    {"types", "config"},
    {"modes"},
    {"nn"},
    {"models", "objective", "data"},
    {"runs"},
    {"acceleration"},
    {"inference"},
    {"training"},
    {"kernels"},
    {"evaluation"},
    {"plots", "service"},
    {"commands"},
    {"cli"},
]
FORBIDDEN = {
    "inference": {"training"},
    "evaluation": {"training"},
    "plots": {"training", "inference", "nn", "models", "kernels"},
    "service": {"training", "evaluation", "commands", "plots"},
    "commands": {"training"},
}
"""What a room must not import even where the order would let it."""
EXCEPT = {"commands/train.py", "commands/auto.py"}
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names}
FRONT = {SRC / "__init__.py", SRC / "__main__.py"}  # the front door may open onto everything
MODULES = sorted(path for path in SRC.rglob("*.py") if path not in FRONT)


def modules(source: str) -> Iterator[str]:
    """The modules of `mue` that a module imports, in any of the three spellings."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the import out from `mue`"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            top, _, below = name.partition(".")
            if top == "mue" and not below.startswith("__"):  # `mue.__version__` is no module
                yield below


def imported(source: str) -> Iterator[str]:
    """The rooms of `mue` that a module imports."""
    return (name.partition(".")[0] for name in modules(source))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_imports_go_one_way(path: Path):
    here = path.relative_to(SRC).with_suffix("").parts[0]
    assert here in LAYER, f"give {here!r} a place in LAYERS"
    for there in imported(path.read_text()):
        if (here, there) == ("acceleration", "kernels"):
            continue  # within a function, and the folder may be missing
        if (path.name, there) == ("png.py", "plots"):
            continue  # within a function, where a sheet of answers is asked for
        assert there == here or LAYER.get(there, len(LAYERS)) < LAYER[here], (
            f"{here} imports {there or 'mue itself'}"
        )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_what_a_room_must_not_know(path: Path):
    name = str(path.relative_to(SRC))
    if name not in EXCEPT:
        found = FORBIDDEN.get(name.partition("/")[0], set()) & set(imported(path.read_text()))
        assert not found, f"{name} imports {', '.join(found)}"


def test_files_of_one_table_do_not_import_each_other():
    """A route is added or removed by one file and one line of its table; a reader of images too."""
    for folder in ("service/routes", "service/middleware"):
        room = f"{folder.replace('/', '.')}."
        for path in (SRC / folder).glob("[a-z]*.py"):
            found = [name for name in modules(path.read_text()) if name.startswith(room)]
            assert not found, f"{path.relative_to(SRC)} imports {found[0]}"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("import mue.nn.unet", ["nn"]),
        ("from mue.training.loop import fit", ["training"]),
        ("from mue import types, nn", ["types", "nn"]),
        ("import mue", [""]),
        ("from mue import __version__", []),
        ("import museum, torch.nn", []),
    ],
)
def test_every_spelling_of_an_import_is_seen(line: str, parts: list[str]):
    assert list(imported(line)) == parts


METHOD = [
    "types.py",
    "nn/codebook.py",
    "models/modal.py",
    "models/posterior.py",
    "models/learner.py",
    "objective.py",
    "training/step.py",
    "training/loop.py",
]
PROCESSES = ("torch.distributed", "mue.runtime.collectives", "mue.training.distributed")
THREADS = ("mue.training.rendezvous", "mue.data.prefetch")


def test_the_method_is_read_in_one_sitting():
    texts = [(SRC / name).read_text() for name in METHOD]
    assert sum(len(text.splitlines()) for text in texts) < 1000
    for name, text in zip(METHOD, texts, strict=True):
        found = re.findall("cuda|stream|triton|compile|rank|process", text, re.IGNORECASE)
        assert not found, f"{name} says {found[0]}"


@pytest.mark.parametrize("name", METHOD)
def test_the_method_imports_no_processes_directly_or_through_another_module(name: str):
    """What it imports of `mue` is defined where it is imported from, not passed on there."""
    for node in ast.walk(ast.parse((SRC / name).read_text())):
        if isinstance(node, ast.Import):
            pairs = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            pairs = [(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        for module, imported_name in pairs:
            spelled = f"{module}.{imported_name}"
            assert not spelled.startswith(PROCESSES + THREADS), f"{name} imports {spelled}"
            if module.startswith("mue."):
                source = SRC.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text()
                assert imported_name in _defined(source), f"{spelled} is defined elsewhere"


def _defined(source: str) -> Iterator[str]:
    """The names that a module defines, rather than imports."""
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (t.id for t in targets if isinstance(t, ast.Name))


def test_a_step_is_one_screen():
    """From the batch to the update: the body of the class that takes it."""
    tree = ast.parse((SRC / "training" / "step.py").read_text())
    (step,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TrainStep")
    assert step.end_lineno is not None
    assert step.end_lineno - step.lineno < 85


def test_nn_is_plain_pytorch():
    for path in (SRC / "nn").glob("*.py"):
        found = re.findall(r"hasattr|setattr|is_grad_enabled|is_compiling|cuda", path.read_text())
        assert not set(found) - ({"setattr"} if path.name == "replace.py" else set()), path.name


def test_nothing_else_needs_the_kernels():
    """Training, answering and evaluation without the folder; `MUE_WITHOUT_KERNELS=1` runs all."""
    names = ["training/test_loop.py", "inference/test_load.py", "nn/test_unet.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(str(Path(__file__).parent / n) for n in names)],
        env={**os.environ, "MUE_WITHOUT_KERNELS": "1"},
        capture_output=True,
        text=True,
        cwd=SRC.parents[1],
    )
    assert done.returncode == 0, done.stdout[-2000:]
