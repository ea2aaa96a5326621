"""Tokens and names that may be used."""

import pytest

from mue.errors import MueError
from mue.service.settings import Settings, host_allowed, is_loopback


@pytest.mark.parametrize("token", ["a" * 15, "", "a" * 16 + "é"])
def test_a_token_that_is_short_or_not_ascii_is_refused(token):
    with pytest.raises(MueError, match="at least 16 ASCII"):
        Settings(token=token)
    assert Settings(token="a" * 16).token


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_what_is_this_machine_alone(host, loopback):
    assert is_loopback(host) == loopback


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("localhost:8000", True),
        ("127.0.0.1", True),
        ("[::1]:8000", True),
        ("Ours.example.:443", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_names_that_are_ours(header, allowed):
    assert host_allowed(header, ("ours.example",)) == allowed
