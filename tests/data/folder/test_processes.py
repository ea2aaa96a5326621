"""Results of several processes: their order, errors and end."""

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mue.data.folder.processes import available_cores, map_in_processes

SOURCE = str(Path(__file__).parents[3] / "src")


def evaluated(*expressions: str) -> list[Any]:
    """The values of lists, each in one of two processes."""
    found = map_in_processes(eval, expressions, 2)
    return [value for values in found for value in values]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_are_in_order_whatever_the_number_of_processes(count):
    arguments = ["abcdefg" if i % 3 else str(i) for i in range(9)] + [""]
    found = map_in_processes(itertools.permutations, arguments, count)
    wanted = [list(itertools.permutations(argument)) for argument in arguments]
    assert [list(parts) for parts in found] == wanted


def test_processes_do_not_import_torch():
    assert evaluated("['torch' in __import__('sys').modules]", "['a']") == [False, "a"]


def test_a_script_without_a_guard_may_call_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "print('imported')\n"
        "from mue.data.folder.processes import map_in_processes\n"
        "print([list(parts) for parts in map_in_processes(range, [1, 2, 3], 2)])\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "imported\n[[0], [0, 1], [0, 1, 2]]\n", done.stderr


@pytest.mark.skipif(os.name != "posix", reason="there are no process groups")
def test_ctrl_c_in_a_terminal_does_not_reach_the_processes():
    (group, pid) = evaluated("[__import__('os').getpgrp(), __import__('os').getpid()]")
    assert group == pid != os.getpgrp()


def test_processes_end_when_their_results_are_not_wanted():
    endless = "__import__('itertools').repeat(__import__('os').getpid())"
    found = map_in_processes(eval, [endless] * 2, 2)
    pid = next(next(found))
    os.kill(pid, 0)  # it is there
    found.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_that_is_killed_is_an_error_with_its_status():
    with pytest.raises(ChildProcessError) as killed:
        evaluated("[1]", "__import__('os').kill(__import__('os').getpid(), 9)")
    assert killed.value.errno == -9


def test_there_is_at_least_one_core():
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
