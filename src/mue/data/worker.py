"""A process that runs a module of this package, and imports nothing but what that module needs.

The front of the package imports torch, which takes a second; without it such a process starts in a
tenth of one. It has a group of its own, so that Ctrl-C reaches the caller alone, and reads and
writes pipes: it ends when they are closed.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_CODE = """\
import importlib, sys, types
sys.modules["mue"] = types.ModuleType("mue")
sys.modules["mue"].__path__ = [sys.argv[1]]
importlib.import_module(sys.argv[2]).work()
"""
_PACKAGE = str(Path(__file__).parents[1])


def start_worker(
    module: str, *, environment: Mapping[str, str] | None = None, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that calls `work` of a module; `environment` is added to this one's."""
    return subprocess.Popen(  # noqa: S603  our own code
        [sys.executable, "-P", "-W", "ignore", "-c", _CODE, _PACKAGE, module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=os.environ | dict(environment or {}),
        process_group=0 if os.name == "posix" else None,
    )


def end_worker(worker: subprocess.Popen[bytes]) -> None:
    """End a process, whatever it does."""
    worker.kill()
    for pipe in (worker.stdin, worker.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    worker.wait()
