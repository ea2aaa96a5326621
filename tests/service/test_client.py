"""The client in one file."""

import http.server
import socket
import threading

import httpx
import pytest

from mue.service.client import Client, ServiceError


def test_the_client_gets_what_the_service_answers(client, picture, tmp_path):
    ours = Client(str(client.base_url))
    (tmp_path / "a.png").write_bytes(picture)
    found = ours.propose(tmp_path / "a.png", model="lidc-exact", k=2)
    files, form = {"file": ("a.png", picture)}, {"model": "lidc-exact", "k": "2"}
    other = client.post("/api/propose", files=files, data=form).json()
    assert [m["prob"] for m in found["modes"]] == [m["prob"] for m in other["modes"]]
    assert ours.export(picture, model="lidc-exact", format="npz")[:2] == b"PK"
    assert {m["name"] for m in ours.models()} >= {"lidc-exact"}


def test_the_client_sends_the_files_of_a_series(client, series, tmp_path):
    for name, content in series:
        (tmp_path / name).write_bytes(content)
    ours = Client(str(client.base_url))
    found = ours.propose(list(tmp_path.iterdir()), model="lidc-exact", slice=1, details=True)
    assert (found["image"]["slices"], found["image"]["low"]) == (6, 1 - 1024)


def test_an_error_is_the_sentence_of_the_service(client):
    with pytest.raises(ServiceError, match="is not PNG") as caught:
        Client(str(client.base_url)).propose(b"hello", model="lidc-exact")
    assert caught.value.status == 422


def test_a_body_that_is_too_large_is_refused_with_the_reason(served):
    with served(body=1000) as client, pytest.raises(ServiceError, match="1000 bytes") as caught:
        Client(str(client.base_url)).propose(bytes(1 << 24), model="lidc-exact")
    assert caught.value.status == 413


def test_the_name_of_a_file_ends_no_header(client, picture):
    name = 'a"\r\nContent-Type: text/plain.png'
    ours = Client(str(client.base_url))
    assert ours.propose(picture, model="lidc-exact", name=name)["modes"]
    with pytest.raises(ServiceError, match=r"^plain\.png is not PNG"):
        ours.propose(b"rubbish", model="lidc-exact", name=name)


def test_a_client_waits_for_a_service_that_starts(served, picture):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found: list[int] = []

    def ask() -> None:
        answer = Client(f"http://127.0.0.1:{port}").propose(picture, model="guess-exact")
        found.append(len(answer["modes"]))

    thread = threading.Thread(target=ask)
    thread.start()
    with served(port=port) as client:
        assert isinstance(client, httpx.Client)
        thread.join()
    assert found


class Flaky(http.server.BaseHTTPRequestHandler):
    """Ends in the middle of the first answer, then asks for patience until a date."""

    asked = 0

    def do_GET(self) -> None:
        Flaky.asked += 1
        date = "Wed, 21 Oct 2015 07:28:00 GMT"
        self.send_response(503 if Flaky.asked == 2 else 200)
        self.send_header("Retry-After", date)
        self.send_header("Content-Length", "100" if Flaky.asked == 1 else "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *args, **_) -> None:
        """Say nothing."""


def test_a_client_asks_again_for_an_answer_that_ended_early():
    with http.server.HTTPServer(("127.0.0.1", 0), Flaky) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert Client(f"http://127.0.0.1:{server.server_port}").models() == []
        server.shutdown()
    assert Flaky.asked == 3


def test_a_client_gives_up_in_time():
    with pytest.raises(ServiceError, match="cannot be reached"):
        Client("http://127.0.0.1:9", patience=0.1).models()
    with pytest.raises(ValueError, match="must begin with http"):
        Client("127.0.0.1:8000")
