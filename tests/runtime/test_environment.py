import os
import subprocess
import sys


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
