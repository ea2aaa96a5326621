"""Bodies of requests."""

import asyncio
import contextlib
import socket
import time

import pytest
from asking import TOKEN, counters, propose

from mue.service.app import create_app
from mue.service.settings import Settings


def test_a_large_body_is_refused_with_and_without_its_length(served):
    with served(body=1000) as client:
        assert propose(client, b"x" * 2000).status_code == 413
        chunks = (b"x" * 600 for _ in range(4))
        assert client.post("/api/propose", content=chunks).status_code == 413


def test_a_wrong_length_is_refused(predictors):
    app = create_app(predictors, Settings(), warm=False)
    statuses: list[int] = []

    async def send(message):
        statuses.append(message.get("status", 0))

    for length in (b"9" * 5000, b"-1", b"\xb2"):
        headers = [(b"host", b"localhost"), (b"content-length", length)]
        scope = {"type": "http", "method": "POST", "path": "/api/propose", "headers": headers}
        asyncio.run(called(app, scope, _never, send))
    assert statuses == [400, 0] * 3


async def _never():
    raise AssertionError("the body must not be read")


async def called(app, *asked) -> None:
    await app(*asked)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/nowhere", 404),
        ("POST", "/api/models", 405),
        ("PUT", "/api/propose", 405),
        ("GET", "/api/models", 200),
        ("HEAD", "/", 200),
    ],
)
def test_a_body_is_read_for_uploads_alone(served, method, path, status):
    with served() as client:
        address = (client.base_url.host, client.base_url.port)
        with socket.create_connection(address, 30) as sends:  # a byte of 30 MiB that it claims
            sends.sendall(
                f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Length: {30 << 20}\r\n\r\nx".encode()
            )
            assert sends.recv(64).startswith(f"HTTP/1.1 {status}".encode())


def test_nothing_of_an_upload_is_read_without_a_token_or_beyond_the_rate(served):
    with served(token=TOKEN, rate=0.001, burst=2) as client:
        address, said = (client.base_url.host, client.base_url.port), list[bytes]()
        for _ in range(3):
            with socket.create_connection(address, 30) as sends:
                sends.sendall(
                    b"POST /api/propose HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Length: 1048576\r\n\r\nx"
                )
                said.append(sends.recv(12))
    assert said == [b"HTTP/1.1 401", b"HTTP/1.1 401", b"HTTP/1.1 429"]


def test_slow_uploads_leave_memory_to_others(served, picture):
    with served(body=1 << 20, memory=1 << 21) as client, contextlib.ExitStack() as slow:
        address = (client.base_url.host, client.base_url.port)
        for _ in range(4):  # each claims half of the memory, and sends nothing of it
            upload = slow.enter_context(socket.create_connection(address))
            upload.sendall(
                b"POST /api/propose HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: 1048576\r\n\r\nxx"
            )
        time.sleep(0.1)
        assert propose(client, picture).status_code == 200


def test_a_body_that_no_memory_is_left_for_is_503(served, picture):
    with served(memory=100) as client:
        found = propose(client, picture)
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")
        counters(client, "mue_request_bytes 0")
