import pytest

from mue.errors import MueError
from mue.runtime.collectives import env_int


@pytest.mark.parametrize("value", ["", "two"])
def test_an_environment_variable_that_is_no_number_is_named(monkeypatch, value):
    monkeypatch.setenv("WORLD_SIZE", value)
    with pytest.raises(MueError, match=f"WORLD_SIZE must be a whole number .*, got '{value}'"):
        env_int("WORLD_SIZE")
