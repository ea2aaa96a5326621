import pickle
from pathlib import Path

import pytest

from mue.errors import MueError, ReadError, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä ✓", "plain ä ✓"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("not UTF-8: \udcff", "not UTF-8: \\xff"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_cannot_be_shown_is_escaped(text, shown):
    assert printable(text) == shown
    assert str(MueError(text)) == shown
    shown.encode()


def test_a_sentence_of_megabytes_keeps_its_beginning_and_its_end():
    shown = str(MueError("begin" + "x" * 5_000_000 + "end"))
    assert len(shown) < 1100
    assert shown.startswith("begin")
    assert shown.endswith("end")


def test_an_error_of_a_reader_has_its_path_and_its_reason_apart():
    error = ReadError(Path("a b/c.png"), "is\na truncated PNG")
    for found in (error, pickle.loads(pickle.dumps(error))):
        assert (found.path, found.reason) == ("a b/c.png", "is\na truncated PNG")
        assert str(found) == "a b/c.png is\\na truncated PNG"
