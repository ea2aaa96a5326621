import subprocess
import sys

import pytest

from mue.commands.train import train
from mue.errors import MueError
from mue.training.checkpoint import load_config
from mue.training.log import LOG, read_log


def test_a_last_line_that_was_cut_off_is_left_out(folder):
    whole = read_log(folder)
    text = (folder / LOG).read_text()
    for cut in (1, 2, 20, len(text.splitlines()[-1])):
        (folder / LOG).write_text(text[:-cut])
        kept = read_log(folder)
        assert kept == whole[: len(kept)]
        assert len(kept) == (12 if cut == 1 else 11)  # the end of the line alone is no loss
    assert read_log(folder / "none") == []


@pytest.mark.parametrize("line", ["", "{", "[]", '{"step": 3}', '{"unknown": 1}', "\xff"])
def test_any_other_line_that_is_no_record_is_refused_and_kept(folder, line):
    lines = (folder / LOG).read_text().splitlines()
    for row in (2, 11):  # in the middle, and the last with its line feed
        damaged = "\n".join([*lines[:row], line, *lines[row + 1 :], ""]).encode("latin-1")
        (folder / LOG).write_bytes(damaged)
        with pytest.raises(MueError, match=rf"log\.jsonl, line {row + 1}, must be a record"):
            train(load_config(folder), folder, resume=True)
        assert (folder / LOG).read_bytes() == damaged


def test_the_package_works_without_the_module_resource():
    """Windows has none."""
    program = (
        "import sys; sys.modules['resource'] = None\n"
        "import mue, torch; from mue.training.log import peak_memory\n"
        "print(peak_memory(torch.device('cpu')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
