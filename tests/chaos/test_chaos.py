"""A short run of the disturbances; `make chaos` is the long one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_what_is_disturbed_is_whole_and_goes_on_to_the_same_bytes(tmp_path):
    command = [sys.executable, "tests/chaos/chaos.py", "--trials", "1", "--command", "export"]
    command += ["import folder", "predict", "--disturbance", "kill", "disk", "twin"]
    command += ["--counts", str(tmp_path / "chaos.json"), "--page", str(tmp_path / "page.md")]
    paths = os.pathsep.join(str(ROOT / p) for p in ("src", "benchmarks", "tests/fuzz"))
    told = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    assert "| export: kill | 1 |" in (tmp_path / "page.md").read_text()
