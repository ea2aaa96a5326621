"""A short run of the disturbances; `make chaos` is the long one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_what_is_disturbed_is_whole_and_goes_on_to_the_same_bytes(tmp_path):
    command = [sys.executable, "tests/chaos/chaos.py", "--trials", "1", "--command", "export"]
    command += ["import folder", "--disturbance", "kill", "concurrent"]
    command += ["--counts", str(tmp_path / "chaos.json"), "--page", str(tmp_path / "page.md")]
    paths = os.pathsep.join(str(ROOT / p) for p in ("src", "benchmarks", "tests/fuzz"))
    told = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    page = (tmp_path / "page.md").read_text()
    assert re.search(r"\| export: kill \| [1-4] \| [01] \| 0 \|", page)


def test_success_without_a_file_that_nobody_removed_is_a_finding(tmp_path):
    """A training that says it succeeded, and whose weights are gone."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").touch()
    code = (
        "import sys, pathlib; sys.path[:0] = ['tests/chaos', 'tests/fuzz', 'benchmarks']\n"
        "from chaos import COMMANDS, Chaos\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "whole = {'config.json': b'', 'weights.safetensors': b'1'}\n"
        "check = object.__new__(Chaos)._check_removed\n"
        "given = root / 'out', root, whole\n"
        "check(COMMANDS['train'], 1, set(), *given)\n"
        "check(COMMANDS['train'], 0, {'weights.safetensors'}, *given)\n"
        "check(COMMANDS['train'], 0, {'log.jsonl'}, *given)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert "line 9" in told.stderr
    assert "it succeeded, and weights.safetensors is lost or wrong" in told.stderr
