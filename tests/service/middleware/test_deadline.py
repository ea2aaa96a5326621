"""The time of a request."""

from asking import propose


def test_a_request_that_takes_too_long_is_504(served, picture):
    with served(seconds=0.001) as client:
        assert propose(client, picture).status_code == 504
