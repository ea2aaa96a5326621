"""Connections that send or read nothing."""

import contextlib
import socket
import time
from types import SimpleNamespace

import pytest
from asking import counters, propose

from mue.service.connection import TimedConnection


def test_a_connection_without_a_whole_header_is_closed(served, monkeypatch, picture):
    monkeypatch.setattr("mue.service.connection.SECONDS", 0.2)
    with served() as client:
        address = (client.base_url.host, client.base_url.port)
        with (
            socket.create_connection(address, 30) as silent,
            socket.create_connection(address, 30) as slow,
            socket.create_connection(address, 30) as uploads,
        ):
            slow.sendall(b"GET / HTTP/1.1\r\nHost: loc")
            uploads.sendall(
                b"POST /api/propose HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
            )
            assert silent.recv(1) == slow.recv(1) == b""
            uploads.sendall(b"a" * 9)  # a body has the time of a request
            assert uploads.recv(64).startswith(b"HTTP/1.1 422")
            assert propose(client, picture).status_code == 200


def test_a_body_that_nobody_reads_has_the_time_of_a_header(served, monkeypatch):
    monkeypatch.setattr("mue.service.connection.SECONDS", 0.2)
    with served() as client:
        address = (client.base_url.host, client.base_url.port)
        with socket.create_connection(address, 30) as sends:
            sends.sendall(
                b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n"
            )
            assert sends.recv(1 << 16).startswith(b"HTTP/1.1 404")
            with pytest.raises(ConnectionError):
                trickle(sends)


def trickle(connection: socket.socket) -> None:
    """Send a byte now and then."""
    for _ in range(600):
        connection.sendall(b"x")
        time.sleep(0.05)


def test_a_client_that_does_not_read_is_left_and_the_log_says_so(served, monkeypatch):
    monkeypatch.setattr("mue.service.connection.SECONDS", 0.2)
    with served(rate=0.0) as client:
        address = (client.base_url.host, client.base_url.port)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(address)
            deaf.sendall(b"GET /page/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
            counters(client, 'path="/page",status="499"')
            found = 0
            with contextlib.suppress(ConnectionError):
                while part := deaf.recv(1 << 16):
                    found += len(part)
        size = len(client.get("/page/style.css").content)
    assert found < 500 * size


def test_a_client_that_reads_slowly_is_waited_for():
    sizes, calls, aborted = [900, 500, 499, 499], list[tuple](), list[bool]()
    connection = TimedConnection.__new__(TimedConnection)
    connection.transport = SimpleNamespace(  # pyright: ignore[reportAttributeAccessIssue]
        get_write_buffer_size=lambda: sizes.pop(0), abort=lambda: aborted.append(True)
    )
    connection.loop = SimpleNamespace(  # pyright: ignore[reportAttributeAccessIssue]
        call_later=lambda _, function, size: calls.append((function, size))
    )
    connection._abort_if_unread(None)
    while calls:
        assert not aborted
        function, size = calls.pop()
        function(size)
    assert aborted
    assert not sizes
