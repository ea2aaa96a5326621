import os
import platform
import subprocess
import sys

import pytest

from mue.runtime.environment import keep_freed_memory


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


def test_onednn_takes_no_amx_unless_the_user_asks_for_it():
    name = "ONEDNN_MAX_CPU_ISA"
    code = f"import mue, os; print(os.environ[{name!r}])"
    for before, after in (({}, "AVX512_CORE_FP16"), ({name: "DEFAULT"}, "DEFAULT")):
        environment = {k: v for k, v in os.environ.items() if k != name} | before
        run = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert run.stdout == f"{after}\n"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is GNU's")
def test_freed_memory_is_used_again_without_new_pages():
    """64 MiB eight times over: pages once, not eight times."""
    code = (
        "import resource, sys; from mue.runtime.environment import keep_freed_memory\n"
        "if sys.argv[1] == 'kept': keep_freed_memory()\n"
        "pages = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "before = pages()\n"
        "for _ in range(8): bytearray(1 << 26)[::1 << 12]; b = bytearray(b'1') * (1 << 26); del b\n"
        "print(pages() - before)\n"
    )
    kept, new = (
        int(subprocess.check_output([sys.executable, "-c", code, how])) for how in ("kept", "new")
    )
    assert kept < new / 3


def test_another_c_library_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    keep_freed_memory()
