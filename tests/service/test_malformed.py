"""Damaged and malicious uploads: each is refused with a sentence, in time, and the service lives.

A few hundred over a socket; `python benchmarks/malformed.py --count 10000` sends more.
"""

import asyncio

import httpx
import pytest

from malformed import send_all


def test_no_upload_breaks_the_service(served):
    with served(rate=0.0) as client:

        async def send():
            async with httpx.AsyncClient(base_url=client.base_url, timeout=60) as many:
                return await send_all(many, 300)

        result = asyncio.run(send())
        assert client.get("/readyz").status_code == 200
    assert result.sound, result.statuses
    assert result.slowest_cpu < 2, (
        result.what
    )  # of all threads, on a machine that does other things


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
