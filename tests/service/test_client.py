"""The client in one file."""

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


def test_a_client_waits_for_a_service_that_starts(served, picture):
    import socket

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


def test_a_client_gives_up_in_time():
    with pytest.raises(ServiceError, match="cannot be reached"):
        Client("http://127.0.0.1:9", patience=0.1).models()
    with pytest.raises(ValueError, match="must begin with http"):
        Client("127.0.0.1:8000")
