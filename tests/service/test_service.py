"""The models and their threads."""

import asyncio
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import Future

import httpx
import pytest
from asking import propose

from mue.service.batching import Batcher, QueueFullError
from mue.service.service import Service
from mue.service.settings import Settings


def test_a_request_that_is_over_keeps_its_thread_until_that_ends(predictors, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    service, end = Service(predictors, Settings()), threading.Event()
    started: list[int] = []

    def decode(number: int) -> None:
        started.append(number)
        end.wait()

    async def send_and_leave() -> None:
        for number in range(8):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(service.run(decode, number), 0.02)
        assert started == [0, 1]
        end.set()
        assert await service.run(lambda: "free again") == "free again"

    asyncio.run(send_and_leave())


def test_a_full_queue_is_503_with_retry_after(served, picture):
    with served(queue=0) as client:
        found = propose(client, picture)
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")


def test_clients_before_it_is_ready_do_not_keep_it_from_it(predictors):
    class Full(Batcher):
        asked = 0

        def __init__(self):
            self.predictors = predictors

        def submit(self, model, x):  # noqa: ARG002
            self.asked += 1
            if self.asked < 3:
                raise QueueFullError
            done = Future()
            done.set_result(None)
            return done

    service = Service(predictors, Settings())
    service._batcher = Full()
    asyncio.run(service.warm_up_(["guess-exact"]))
    assert service.ready


@pytest.mark.slow
def test_sigterm_finishes_the_request_in_flight(picture):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mue", "serve", "guess-exact", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            while True:
                try:
                    if client.get("/readyz").status_code == 200:
                        break
                except httpx.TransportError:
                    assert server.poll() is None
                time.sleep(0.1)
            sent = client.build_request(
                "POST", "/api/propose", files={"file": picture}, data={"model": "guess-exact"}
            )
            lines = [f"{name}: {value}" for name, value in sent.headers.items()]
            head = "\r\n".join(["POST /api/propose HTTP/1.1", *lines, "", ""]).encode()
        with socket.create_connection(("127.0.0.1", port), 60) as flying:
            content = sent.read()
            flying.sendall(head + content[:-100])
            time.sleep(0.3)  # it has begun
            server.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            with pytest.raises(ConnectionError):
                socket.create_connection(("127.0.0.1", port), 1)
            flying.sendall(content[-100:])
            assert flying.recv(64).startswith(b"HTTP/1.1 200")
        assert server.wait(30) in (0, -signal.SIGTERM)  # uvicorn ends as the signal says
    finally:
        server.kill()
        server.wait()


def test_the_service_reads_without_a_word_of_libraries(monkeypatch):
    serve = importlib.import_module("mue.commands.serve")
    monkeypatch.setattr(serve, "load_models", lambda *_, **__: [])
    levels = {name: logging.getLogger(name).level for name in serve._LIBRARIES}
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            serve._load([], "cpu")
            warnings.warn("PatientName is Doe", stacklevel=1)
        assert not said
        for name in ("pydicom", "PIL.TiffImagePlugin", "nibabel.global", "tifffile"):
            assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL)
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
