"""Damaged and malicious uploads: each is refused with a sentence, in time, and the service lives.

A few hundred over a socket; `python benchmarks/malformed.py --count 10000` sends more.
"""

import asyncio
import subprocess
import sys

import httpx
import pytest

from malformed import MAX_GROWTH, Result, forget_largest, largest, resident, send_all


def test_no_upload_breaks_the_service(served):
    with served(rate=0.0) as client:

        async def send():
            async with httpx.AsyncClient(base_url=client.base_url, timeout=60) as many:
                return await send_all(many, 300)

        result = asyncio.run(send())
        assert client.get("/readyz").status_code == 200
    assert result.refused, result.statuses
    assert result.slowest_cpu < 2, result.what  # of all threads, also of those of other tests
    assert result.growth < MAX_GROWTH


def test_memory_that_was_taken_before_does_not_count():
    taken = bytearray(b"1" * (300 << 20))
    del taken
    forget_largest()
    assert largest() < resident() + 100
    taken = bytearray(b"1" * (300 << 20))
    assert largest() > resident() - 100
    del taken
    assert largest() > resident() + 200


def test_the_memory_of_another_process_is_measured():
    code = "import sys; a = bytearray(b'1' * (200 << 20)); del a; print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert largest(other.pid) > 200
        forget_largest(other.pid)
        assert largest(other.pid) < 100
        other.communicate(b"\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [("slowest_cpu", 1.1), ("growth", 2000.0), ("speechless", 1), ("alive", False)],
)
def test_what_is_slow_large_or_silent_is_not_sound(name, value):
    result = Result()
    result.alive = True
    result.statuses["bomb"][422] += 1
    assert result.sound
    setattr(result, name, value)
    assert not result.sound
    result = Result()
    result.alive = True
    result.statuses["bomb"][500] += 1
    assert not result.sound


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        ({"content-type": "multipart/form-data"}, b"x"),
        ({"content-type": "multipart/form-data; boundary=a"}, b"--a\r\nrubbish"),
        ({"content-type": "application/json"}, b"{}"),
        ({}, b""),
    ],
)
def test_a_form_that_is_none_is_refused(client, headers, content):
    found = client.post("/api/propose", headers=headers, content=content)
    assert 400 <= found.status_code < 500
    assert "error" in found.json()
