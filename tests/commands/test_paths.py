"""One path or several."""

from pathlib import Path

import pytest

from mue.commands.paths import paths_of
from mue.errors import MueError


@pytest.mark.parametrize("given", ["a b", Path("a b"), ["a b"], (Path("a b"),)])
def test_one_path_is_a_list_of_one(given):
    assert paths_of(given, "images") == [Path("a b")]


def test_several_paths_stay_in_their_order():
    assert paths_of(["b", Path("a"), "b"], "images") == [Path("b"), Path("a"), Path("b")]


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_path_is_named():
    with pytest.raises(MueError, match=r"`images` must be paths of files or folders, got int$"):
        paths_of(["a", 3], "images")  # pyright: ignore[reportArgumentType]
