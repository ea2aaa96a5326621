"""The command: who may listen where, and how it starts and stops."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest

import mue
from mue.commands.serve import _bind, _load
from mue.errors import MueError
from mue.service.client import Client


def test_another_address_needs_a_token(monkeypatch):
    monkeypatch.delenv("MUE_TOKEN", raising=False)
    with pytest.raises(MueError, match=r"`token` must be given to listen on 0\.0\.0\.0"):
        mue.serve([], host="0.0.0.0")


@pytest.mark.parametrize(
    ("asked", "named"),
    [({"name": ["a.example"]}, "--name a.example"), ({"proxy": "127.0.0.1"}, "--proxy 127.0.0.1")],
)
def test_a_name_and_a_proxy_need_a_token(monkeypatch, asked, named):
    monkeypatch.delenv("MUE_TOKEN", raising=False)
    with pytest.raises(MueError, match=f"`token` must be given with {named}"):
        mue.serve([], **asked)


def test_a_model_that_cannot_be_loaded_ends_the_service(mue, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = mue("serve", tmp_path / "no-model", "--port", port)
    assert said.code == 2
    assert "no-model" in said.err
    assert "Traceback" not in said.err


def test_a_wrong_port_is_refused():
    with pytest.raises(MueError, match=r"`port` must be in 0\.\.65535, got 70000"):
        mue.serve([], port=70_000)


def test_replicas_without_ray_are_refused_with_the_way_to_install_it(mue, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "mue.service.replicas", raising=False)
    said = mue("serve", "guess-exact", "--replicas", 2)
    assert said.code == 2
    assert "needs the package ray; run `pip install '.[serve,ray]'`" in said.err


def test_fewer_replicas_at_most_than_at_least_are_refused():
    with pytest.raises(MueError, match=r"`replicas` must be in 1\.\.2, got 3"):
        mue.serve([], replicas=3, max_replicas=2)


def test_a_port_in_use_is_refused_before_a_model_is_loaded():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(MueError, match=f"cannot listen on 127.0.0.1, port {port}: .*--port"):
            mue.serve(["there-is-no-such-model"], port=port)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_end_of_an_answer_does_not_wait_for_its_beginning_to_be_acknowledged(host):
    """Nagle's algorithm is off in the connections that the event loop accepts."""

    async def no_delay() -> int:
        accepted: list[int] = []

        def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            accepted.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = _bind(host, 0)
        async with await asyncio.start_server(serve, sock=listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            await reader.read()
            writer.close()
        return accepted[0]

    assert asyncio.run(no_delay())


def test_a_model_of_vectors_is_refused():
    import torch

    from mue.config.presets import preset
    from mue.models.build import build_network

    torch.manual_seed(0)
    config = preset("vector")
    predictor = mue.Predictor(build_network(config), config)
    with pytest.raises(MueError, match="models of images"):
        _load([predictor], "cpu")


def test_it_answers_after_kill_9_and_a_restart_and_stops_when_told(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mue", "serve", "guess-exact", "--port", str(port)]
    image = tmp_path / "a.png"
    from PIL import Image

    Image.new("L", (112, 28), 90).save(image)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for signal_, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)):
        server = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)
        try:
            found = Client(f"http://127.0.0.1:{port}", patience=120.0).propose(
                image, model="guess-exact"
            )
            assert found["modes"]
        finally:
            server.send_signal(signal_)
            _, said = server.communicate(timeout=60)
        assert server.returncode in (code, -signal_), said.decode()
        assert "Traceback" not in said.decode()
