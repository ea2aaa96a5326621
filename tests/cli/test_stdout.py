import contextlib
import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mue.cli.stdout import StandardOutput


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has such a device")
@pytest.mark.parametrize("arguments", ["evaluate copy --inputs 2 --json", "--version", "--help"])
@pytest.mark.usefixtures("folder")
def test_a_full_standard_output_is_named(tmp_path, arguments):
    command = [sys.executable, "-m", "mue", *arguments.split()]
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert said.returncode == 2
    assert said.stderr.endswith("mue: standard output: No space left on device\n")
    assert "Traceback" not in said.stderr
    assert "Exception" not in said.stderr


class Broken(io.StringIO):
    """A stream that cannot be written to."""

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fileno(self) -> int:
        return os.open(os.devnull, os.O_WRONLY)


def test_an_error_of_writing_names_standard_output_and_nothing_else_changes():
    plain = io.StringIO()
    with contextlib.redirect_stdout(StandardOutput(plain)) as output:
        sys.stdout.write("text\n")
        output.flush()
    assert (plain.getvalue(), output.isatty()) == ("text\n", False)
    with pytest.raises(OSError, match="No space left") as said:
        StandardOutput(Broken()).write("text")
    assert said.value.filename == "standard output"
