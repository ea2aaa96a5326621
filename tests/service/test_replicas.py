"""Replicas of Ray Serve: where the extra `ray` is installed."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from asking import counters

pytest.importorskip("ray.serve")
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def replicas():
    """The module, of which Ray takes the environment: this process must not have one of its own."""
    with pytest.MonkeyPatch.context() as environment:
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
            environment.setenv(name, "")
        from mue.service import replicas

        yield replicas


def test_a_request_whose_replica_dies_goes_to_another(replicas):
    from ray.exceptions import RayActorError  # pyright: ignore[reportMissingImports]

    asked, tries = replicas.Asked("GET", "/api/models", b"", b"", b""), 0

    async def remote(_):
        nonlocal tries
        tries += 1
        if tries < 3:
            raise RayActorError
        return replicas.Answered(200, {}, b"[]")

    assert asyncio.run(replicas.forward_to(remote)(asked)).body == b"[]"
    assert tries == 3


def test_a_request_is_forwarded_four_times_at_most(replicas, monkeypatch):
    from ray.exceptions import RayActorError  # pyright: ignore[reportMissingImports]

    from mue.service.errors import RefusedError

    monkeypatch.setattr(replicas, "_WAITS", (0.0, 0.0, 0.0))
    asked, tries = replicas.Asked("POST", "/api/propose", b"", b"", b""), 0

    async def remote(_):
        nonlocal tries
        tries += 1
        raise RayActorError

    with pytest.raises(RefusedError, match="no replica could answer") as caught:
        asyncio.run(replicas.forward_to(remote)(asked))
    assert (tries, caught.value.status) == (4, 503)


def test_a_body_goes_to_a_replica_of_uploads_alone(replicas):
    from mue.service.settings import Settings

    bodies = list[tuple[str, bytes]]()

    async def remote(asked):
        bodies.append((asked.method, asked.body))
        return replicas.Answered(200, {}, b"[]")

    front = replicas.create_front(remote, Settings())
    client = httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://localhost")

    async def ask() -> None:
        await client.request("GET", "/api/models", content=b"x" * 100)
        await client.post("/api/propose", content=b"x")

    asyncio.run(ask())
    assert bodies == [("GET", b""), ("POST", b"x")]


def test_a_full_queue_is_503_with_retry_after(replicas):
    from ray.serve.exceptions import BackPressureError  # pyright: ignore[reportMissingImports]

    from mue.service.settings import Settings

    async def remote(_):
        raise BackPressureError(num_queued_requests=9, max_queued_requests=8)

    front = replicas.create_front(replicas.forward_to(remote), Settings())
    client = httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://localhost")
    found = asyncio.run(client.get("/api/models"))
    assert (found.status_code, found.headers["retry-after"]) == (503, "1")
    assert found.json() == {"error": "too many images wait; try again"}
    assert found.headers["x-content-type-options"] == "nosniff"


def test_it_is_ready_while_a_replica_runs(replicas):
    from mue.service.settings import Settings

    counts = [1, 0, 2]
    front = replicas.create_front(replicas.forward_to(_never), Settings(), lambda: counts.pop(0))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://localhost")
    statuses = list[int]()

    async def ask() -> None:
        for _ in range(3):
            statuses.append((await client.get("/readyz")).status_code)

    asyncio.run(ask())
    assert statuses == [200, 503, 200]


async def _never(_):
    raise AssertionError("no replica must be asked")


def test_ray_of_this_machine_writes_no_upload_to_a_disk(replicas, monkeypatch):
    found: dict = {}
    monkeypatch.setattr(replicas.ray, "init", lambda **options: found.update(options))
    monkeypatch.setattr(replicas, "_ADDRESS", None)
    replicas._connect(1)
    assert found["_system_config"] == {"automatic_object_spilling_enabled": False}
    assert found["object_spilling_directory"] == "/dev/shm"


def children(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    folder = Path(f"/proc/{pid}/task")
    found = [int(c) for t in folder.glob("*/children") for c in t.read_text().split()]
    return found + [below for child in found for below in children(child)]


@pytest.mark.slow
def test_no_client_notices_that_a_replica_is_killed(picture):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = "a token of the test, long enough"
    command = [sys.executable, "-m", "mue", "serve", "guess-exact", "--replicas", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MUE_TOKEN": token}
    environment = {k: v for k, v in environment.items() if not k.startswith("RAY_")}
    command += ["--port", str(port), "--rate", "0"]  # four clients are one address
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address, statuses, until = f"http://127.0.0.1:{port}", list[int](), 0.0
    headers = {"Authorization": f"Bearer {token}"}

    def ask() -> None:
        with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
            while time.monotonic() < until or not statuses:
                files = {"file": ("a.png", picture)}
                found = client.post("/api/propose", files=files, data={"model": "guess-exact"})
                statuses.append(found.status_code)

    try:
        while True:  # until the replicas have started
            try:
                assert httpx.get(f"{address}/readyz").status_code == 200
                break
            except httpx.TransportError:
                assert server.poll() is None
                time.sleep(0.2)
        refused = httpx.get(f"{address}/api/models")
        assert (refused.status_code, "error" in refused.json()) == (401, True)
        wrong = httpx.post(f"{address}/api/propose", headers=headers, files={"file": b"rubbish"})
        assert (wrong.status_code, "error" in wrong.json()) == (422, True)
        until = time.monotonic() + 8
        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        time.sleep(2)
        named = {p: Path(f"/proc/{p}/cmdline").read_text() for p in children(server.pid)}
        found = [p for p, name in named.items() if "ServeReplica" in name]
        assert len(found) == 2
        os.kill(found[0], signal.SIGKILL)
        for client in clients:
            client.join()
        assert set(statuses) == {200}
        with httpx.Client(base_url=address, headers=headers) as client:
            counters(client, f'path="/api/propose",status="200"}} {len(statuses)}')
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    assert code == 0
