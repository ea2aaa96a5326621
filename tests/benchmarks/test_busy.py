import sys
import time

import pytest

import busy


@pytest.fixture
def naps(monkeypatch):
    """Commands that sleep for as long as their argument says."""
    popen = busy.subprocess.Popen

    def nap(command, **options):
        code = f"import time; time.sleep({command[-1]})" if "mue" in command else command[-1]
        return popen([sys.executable, "-c", code], **options)

    monkeypatch.setattr(busy.subprocess, "Popen", nap)


@pytest.mark.usefixtures("naps")
def test_commands_at_once_take_as_long_as_the_longest_and_in_a_row_as_their_sum():
    at_once = busy.seconds(["1.5"], copies=3)
    in_a_row = busy.seconds(["1.5"], copies=3, serial=True)
    assert at_once >= 1.5
    assert in_a_row >= 4.5


@pytest.mark.usefixtures("naps")
def test_a_command_that_fails_gives_no_number():
    with pytest.raises(RuntimeError, match="mue -1 failed"):
        busy.seconds(["-1"])


def test_a_spinning_program_takes_a_core_and_is_ended(monkeypatch):
    started = []
    popen = busy.subprocess.Popen
    monkeypatch.setattr(
        busy.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )
    with busy.spinning(2):
        time.sleep(0.2)
        assert [p.poll() for p in started] == [None, None]
    assert all(p.poll() is not None for p in started)


def test_the_table_names_the_threads():
    rows = {("mue train toy", 1): [1.0, 2.0, 3.0, 4.0]}
    text = busy.table({"mue train toy": []}, rows)
    assert text.splitlines()[-1] == "| `mue train toy` | 1 | 1.0 | 2.0 | 3.0 | 4.0 |"
