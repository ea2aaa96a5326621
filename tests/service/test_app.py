"""The service by its own interface."""

import asyncio
import base64
import contextlib
import gzip
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import httpx
import nibabel as nib
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from pydicom import dcmread

from mue.service import examples

TOKEN = "a-token-of-enough-characters"


def propose(client, content: bytes, name: str = "a.png", **form):
    form = {"model": "lidc-exact", **form}
    return client.post("/api/propose", files={"file": (name, content)}, data=form)


def decoded(mask: dict) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(mask["png"]))))


# --- answers --------------------------------------------------------------------------------------


def test_the_answers_are_those_of_the_predictor(client, predictors, picture):
    found = propose(client, picture).json()
    modes = predictors["lidc-exact"].modes(np.asarray(Image.open(io.BytesIO(picture)))).top(8)
    assert [m["prob"] for m in found["modes"]] == pytest.approx(modes.prob[0].tolist(), abs=1e-5)
    assert sum(m["prob"] for m in found["modes"]) + found["rest"] == pytest.approx(1, abs=1e-5)
    for mode, y in zip(found["modes"], modes.y[0], strict=True):
        assert np.abs(decoded(mode["mask"]) / 255.0 - y[0].numpy()).max() < 0.003
        assert sum(m["prob"] for m in mode["members"]) == pytest.approx(mode["prob"], abs=1e-5)


def test_runs_and_png_are_the_same_mask(client, picture):
    png = propose(client, picture).json()["modes"]
    runs = propose(client, picture, masks="rle").json()["modes"]
    for a, b in zip(png, runs, strict=True):
        counts, size = b["mask"]["rle"]["mask"]["counts"], b["mask"]["rle"]["mask"]["size"]
        flat = np.repeat(np.arange(len(counts)) % 2, counts)
        assert np.array_equal(flat.reshape(size, order="F"), decoded(a["mask"]) > 127)


def test_k_cut_code_and_coverage_do_what_they_say(client, picture):
    assert len(propose(client, picture, k=1).json()["modes"]) == 1
    finer = propose(client, picture, cut=0.0, k=99).json()["modes"]
    assert len(finer) >= len(propose(client, picture, cut=0.9, k=99).json()["modes"])
    by_code = propose(client, picture, by="code", k=99).json()
    assert all(len(m["members"]) == 1 for m in by_code["modes"])
    assert propose(client, picture, coverage=0.85).json()["coverage"] == 0.9
    wrong = propose(client, picture, coverage=0.9, cut=0.1)
    assert wrong.status_code == 422
    assert "calibrated cut" in wrong.json()["error"]


def test_details_hold_every_answer_the_tree_and_the_image(client, picture):
    found = propose(client, picture, details=True).json()
    k, image = len(found["answers"]), found["image"]
    assert len(found["tree"]["parent"]) == len(found["tree"]["distance"][0]) == k
    assert found["tree"]["height"].count(None) == 1  # the last group is joined to none
    values = np.frombuffer(base64.b64decode(image["values"]), image["dtype"])
    assert np.array_equal(values.reshape(64, 64), np.asarray(Image.open(io.BytesIO(picture))))


def test_an_image_has_the_same_answers_alone_and_in_a_batch(predictors):
    from mue.service.batching import Batcher

    x = torch.rand(6, 1, 64, 64)
    sizes: list[int] = []
    batcher = Batcher(predictors, threads=1, on_batch=sizes.append)
    waiting = [batcher.submit("lidc-exact", image[None]) for image in x]
    found = [w.result() for w in waiting]
    batcher.close()
    assert max(sizes) > 1
    for image, modes in zip(x, found, strict=True):
        alone = predictors["lidc-exact"].modes(image)
        assert torch.allclose(modes.prob, alone.prob, atol=1e-4)


# --- formats --------------------------------------------------------------------------------------


def nifti(values: np.ndarray, affine: np.ndarray) -> bytes:
    return gzip.compress(nib.Nifti1Image(values, affine).to_bytes())


def test_a_slice_of_a_volume_is_answered_and_exported_where_it_was(client):
    values = np.random.default_rng(0).integers(-1000, 400, (40, 48, 5)).astype(np.int16)
    affine = np.array([[-2.0, 0, 0, 5], [0, 3, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1]])
    content = nifti(values, affine)
    image = propose(client, content, "a.nii.gz", details=True, slice=3).json()["image"]
    assert (image["slices"], image["slice"], image["spacing"]) == (5, 3, [3.0, 2.0])
    shown = np.frombuffer(base64.b64decode(image["values"]), "<i2").reshape(48, 40)
    assert np.array_equal(shown, values[:, :, 3].T)
    form = {"model": "lidc-exact", "slice": "3", "format": "nifti"}
    files = {"file": ("a.nii.gz", content)}
    exported = client.post("/api/export", files=files, data=form).content
    back = nib.Nifti1Image.from_bytes(gzip.decompress(exported))
    assert back.shape[:3] == (40, 48, 1)
    assert back.affine is not None
    assert np.allclose(back.affine[:3, 3], affine[:3, 3] + 3 * affine[:3, 2])


def test_every_kind_of_file_is_read_from_memory(client):
    grey = np.random.default_rng(0).integers(0, 255, (32, 32), dtype=np.uint8)
    files: dict[str, bytes] = {"a.nii": nib.Nifti1Image(grey[:, :, None], np.eye(4)).to_bytes()}
    for name in ("a.png", "a.jpg", "a.tif", "a.npy"):
        buffer = io.BytesIO()
        if name == "a.npy":
            np.save(buffer, grey)
        elif name == "a.tif":
            tifffile.imwrite(buffer, grey)
        else:
            Image.fromarray(grey).save(buffer, "PNG" if name == "a.png" else "JPEG")
        files[name] = buffer.getvalue()
    for name, content in files.items():
        assert propose(client, content, name).status_code == 200, name


def export(client, files: list[tuple[str, bytes]], **form):
    form = {"model": "lidc-exact", **form}
    return client.post("/api/export", files=[("file", file) for file in files], data=form)


def test_dicom_is_answered_and_exported_as_a_segmentation(client, series):
    name, content = series[0]
    image = propose(client, content, name, details=True).json()["image"]
    assert (image["low"], image["high"]) == (3 - 1024, 1050 - 1024)
    assert image["formats"] == ["npz", "nifti", "dicom-seg"]
    seg = export(client, [series[0]], format="dicom-seg")
    assert seg.status_code == 200, seg.text
    assert dcmread(io.BytesIO(seg.content)).Modality == "SEG"


def test_a_series_is_ordered_and_its_exports_refer_to_the_slice_that_is_asked_for(client, series):
    by_name = {name: dcmread(io.BytesIO(content)) for name, content in series}
    for k in (0, 4):
        form = {"model": "lidc-exact", "details": "true", "slice": str(k)}
        files = [("file", file) for file in series]
        image = client.post("/api/propose", files=files, data=form).json()["image"]
        assert (image["slices"], image["slice"]) == (6, k)
        values = np.frombuffer(base64.b64decode(image["values"]), image["dtype"])
        assert values[0] == k - 1024
        content = export(client, series, slice=k, format="dicom-seg").content
        (source,) = (
            dcmread(io.BytesIO(content)).ReferencedSeriesSequence[0].ReferencedInstanceSequence
        )
        assert source.ReferencedSOPInstanceUID == by_name[f"{k}.dcm"].SOPInstanceUID
        content = gzip.decompress(export(client, series, slice=k, format="nifti").content)
        back = nib.Nifti1Image.from_bytes(content)
        assert back.shape[:3] == (64, 64, 1)
        assert back.affine is not None
        assert back.affine[2, 3] == 10 + 2.5 * k


def test_a_series_is_refused_by_a_sentence_where_it_is_none(served, series, picture):
    def refused(files, **settings):
        form = {"model": "lidc-exact"}
        with served(**settings) as other:
            parts = [("file", file) for file in files]
            found = other.post("/api/propose", files=parts, data=form)
        assert found.status_code == 422
        return found.json()["error"]

    ordered = sorted(series)
    assert "a.png is not DICOM" in refused([*series, ("a.png", picture)])
    assert "1.dcm has no content" in refused([series[0], ("1.dcm", b"")])
    assert "has a slice missing between 1.dcm" in refused([*ordered[:2], *ordered[3:]])
    assert "two slices between" in refused([*series, series[0]])
    assert "at most 1000 bytes are read" in refused(series, volume=1000)
    assert "has 6 slices; 5 are read" in refused(series, slices=5)


def test_dicom_that_a_segmentation_cannot_refer_to_is_named(client, series):
    data = dcmread(io.BytesIO(series[0][1]))
    del data.StudyInstanceUID
    buffer = io.BytesIO()
    data.save_as(buffer)
    found = export(client, [("a.dcm", buffer.getvalue())], format="dicom-seg")
    assert found.status_code == 422, found.text
    assert "StudyInstanceUID" in found.json()["error"]


# --- what is wrong is said in a sentence ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.png", b""),
        ("a.png", b"\x89PNG\r\n\x1a\nrubbish"),
        ("a.txt", b"hello"),
        ("a.dcm", b"\0" * 128 + b"DICM" + b"rubbish"),
        ("a.nii.gz", gzip.compress(b"\0" * 1000, mtime=0)),
        ("../../etc/passwd", b"root"),
    ],
)
def test_rubbish_is_answered_with_a_sentence(client, name, content):
    found = propose(client, content, name)
    assert found.status_code == 422
    assert set(found.json()) == {"error"}
    assert "Traceback" not in found.text
    assert "/" not in found.json()["error"].split()[0]


def test_an_image_of_huge_dimensions_is_refused_before_it_is_decoded(client):
    buffer = io.BytesIO()
    Image.new("1", (30_000, 30_000)).save(buffer, "PNG")
    found = propose(client, buffer.getvalue())
    assert found.status_code == 422
    assert "30000 x 30000" in found.json()["error"]


def test_a_bomb_in_nifti_is_refused(client):
    header = bytearray(nib.Nifti1Image(np.zeros((4, 4, 4), np.uint8), np.eye(4)).to_bytes()[:352])
    header[40:56] = np.array([3, 900, 900, 2000, 1, 1, 1, 1], "<i2").tobytes()
    found = propose(client, gzip.compress(bytes(header) + b"\0" * (1 << 24)), "a.nii.gz")
    assert found.status_code == 422
    assert "bytes are read" in found.json()["error"]


def test_the_sentence_has_the_thing_the_contract_and_the_value(client, picture):
    def said(**form):
        return propose(client, picture, **form).json()["error"]

    assert said(k=0) == "`k` must be greater than or equal to 1, got 0"
    assert said(slice="x") == "`slice` must be a valid integer, got x"
    assert said(masks="gif") == "`masks` must be 'png', 'rle' or 'none', got gif"
    assert len(said(k="9" * 5000)) < 200
    missing = client.post("/api/propose", data={"model": "lidc-exact"}).json()["error"]
    assert missing.startswith("`file` is missing")
    parts = {"model": (None, "lidc-exact"), "file": (None, "hello")}
    text = client.post("/api/propose", files=parts).json()["error"]
    assert text == "`file` must be a file, got a text"
    assert "leave out `by` and `cut`" in said(by="code", coverage=0.9)


@pytest.mark.parametrize("wrong", [{"k": 0}, {"by": "x"}, {"coverage": 2}, {"cut": -1}, {"k": "a"}])
def test_a_wrong_value_is_named(client, picture, wrong):
    found = propose(client, picture, **wrong)
    assert found.status_code == 422
    assert f"`{next(iter(wrong))}`" in found.json()["error"]


def test_an_unknown_model_and_page_are_not_found(client, picture):
    assert propose(client, picture, model="none").status_code == 404
    assert client.get("/page/..%2fapp.py").status_code == 404
    assert "there is no such address" in client.get("/nowhere").json()["error"]
    assert "another method" in client.get("/api/propose").json()["error"]


# --- safety ---------------------------------------------------------------------------------------


def test_every_answer_has_the_headers(client):
    for path in ("/", "/api/models", "/nowhere"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_head_is_answered_as_get_without_a_body(client):
    for path in ("/", "/healthz", "/page/style.css", "/api/models"):
        head, get = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == get.headers["content-length"]
    assert client.head("/api/propose").status_code == 405


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


def test_a_name_that_is_not_ours_is_refused(client):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/", headers={"host": "192.168.0.7:8000"}).status_code == 200


def test_a_page_of_another_site_is_refused(client):
    for origin in ("http://evil.example", "null", "http://["):
        assert client.get("/", headers={"origin": origin}).status_code == 403
    assert client.get("/", headers={"origin": str(client.base_url).rstrip("/")}).status_code == 200


def test_a_link_of_another_site_opens_the_page_and_nothing_else(client):
    link = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    for method in ("GET", "HEAD"):
        assert client.request(method, "/", headers=link).status_code == 200
    assert client.post("/", headers=link).status_code == 403
    for path in ("/api/models", "/page/viewer.js", "/metrics"):
        assert client.get(path, headers=link).status_code == 403
    for other in ({"sec-fetch-dest": "iframe"}, {"sec-fetch-mode": "no-cors"}):
        assert client.get("/", headers={**link, **other}).status_code == 403
    assert client.get("/", headers={**link, "origin": "http://evil.example"}).status_code == 403


def test_the_token_is_needed_for_answers_and_not_for_the_page(served):
    with served(token=TOKEN) as client:
        assert client.get("/").status_code == client.get("/healthz").status_code == 200
        assert client.get("/api/models").status_code == 401
        assert client.get(f"/api/models?token={TOKEN}").status_code == 401
        wrong, right = ({"authorization": f"Bearer {t}"} for t in (TOKEN[:-1], TOKEN))
        assert client.get("/api/models", headers=wrong).status_code == 401
        assert client.get("/api/models", headers=right).status_code == 200


def test_a_large_body_is_refused_with_and_without_its_length(served):
    with served(body=1000) as client:
        assert propose(client, b"x" * 2000).status_code == 413
        chunks = (b"x" * 600 for _ in range(4))
        assert client.post("/api/propose", content=chunks).status_code == 413


def test_a_wrong_length_is_refused(predictors):
    from mue.service.app import create_app
    from mue.service.settings import Settings

    app = create_app(predictors, Settings(), warm=False)
    statuses: list[int] = []

    async def send(message):
        statuses.append(message.get("status", 0))

    for length in (b"9" * 5000, b"-1", b"\xb2"):
        headers = [(b"host", b"localhost"), (b"content-length", length)]
        scope = {"type": "http", "method": "POST", "path": "/api/propose", "headers": headers}
        asyncio.run(called(app, scope, _never, send))
    assert statuses == [400, 0] * 3


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


def test_a_client_that_does_not_read_is_left_and_the_log_says_so(served, monkeypatch):
    monkeypatch.setattr("mue.service.connection.SECONDS", 0.2)
    with served(rate=0.0) as client:
        address = (client.base_url.host, client.base_url.port)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(address)
            deaf.sendall(b"GET /page/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
            until = time.monotonic() + 60
            while 'path="/page",status="499"' not in (text := client.get("/metrics").text):
                assert time.monotonic() < until, text
                time.sleep(0.05)
            found = 0
            with contextlib.suppress(ConnectionError):
                while part := deaf.recv(1 << 16):
                    found += len(part)
        size = len(client.get("/page/style.css").content)
    assert found < 500 * size


def test_a_client_that_reads_slowly_is_waited_for():
    from mue.service.connection import TimedConnection

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


async def called(app, *asked) -> None:
    await app(*asked)


async def _never():
    raise AssertionError("the body must not be read")


def test_an_image_whose_client_has_gone_is_not_computed(served, picture):
    with served(queue=8, batch=1) as client:
        form = {"model": "lidc-exact"}
        sent = client.build_request("POST", "/api/propose", files={"file": picture}, data=form)
        lines = [f"{name}: {value}" for name, value in sent.headers.items()]
        head = "\r\n".join(["POST /api/propose HTTP/1.1", *lines, "", ""]).encode()
        for _ in range(6):
            with socket.create_connection((sent.url.host, sent.url.port)) as gone:
                gone.sendall(head + sent.read())
                time.sleep(0.02)
        assert propose(client, picture).status_code == 200
        text = client.get("/metrics").text
    assert 'mue_requests_total{path="/api/propose",status="499"}' in text


def test_a_request_that_is_over_keeps_its_thread_until_that_ends(predictors, monkeypatch):
    from mue.service.service import Service
    from mue.service.settings import Settings

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
        assert "mue_request_bytes 0" in client.get("/metrics").text


def test_too_many_requests_are_refused(served):
    with served(rate=0.001, burst=2) as client:
        codes = [client.get("/api/models").status_code for _ in range(3)]
        assert codes == [200, 200, 429]
        assert client.get("/api/models").headers["retry-after"] == "1"
        for path in ("/", "/page/style.css", "/metrics", "/nowhere"):
            assert client.get(path).status_code == 429
        for path in ("/healthz", "/readyz"):
            assert client.get(path).status_code == 200


def test_a_full_queue_is_503_with_retry_after(served, picture):
    with served(queue=0) as client:
        found = propose(client, picture)
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")


def test_a_request_that_takes_too_long_is_504(served, picture):
    with served(seconds=0.001) as client:
        assert propose(client, picture).status_code == 504


def test_the_service_stops_after_what_it_has(predictors):
    from mue.service.batching import Batcher, QueueFullError

    batcher = Batcher(predictors, threads=1)
    waiting = [batcher.submit("guess-exact", torch.rand(1, 1, 28, 112)) for _ in range(4)]
    batcher.close()
    assert all(w.done() for w in waiting)
    with pytest.raises(QueueFullError):
        batcher.submit("guess-exact", torch.rand(1, 1, 28, 112))


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


def test_two_threads_give_the_answers_of_one(predictors):
    from mue.service.batching import Batcher

    x, sizes = torch.rand(12, 1, 28, 112), list[int]()
    batcher = Batcher(predictors, threads=2, on_batch=sizes.append)
    waiting = [batcher.submit("guess-exact", image[None]) for image in x]
    batcher.close()
    assert sum(sizes) == 12
    for image, found in zip(x, waiting, strict=True):
        alone = predictors["guess-exact"].modes(image)
        assert torch.allclose(found.result().prob, alone.prob, atol=1e-4)


def test_an_image_that_fails_in_a_batch_fails_alone(predictors, monkeypatch):
    from mue.service.batching import Batcher

    predictor, x = predictors["guess-exact"], torch.rand(6, 1, 28, 112)
    x[2] = float("nan")
    modes = predictor.modes

    def fails(images):
        if images.isnan().any():
            raise ValueError("this one")
        return modes(images)

    monkeypatch.setattr(predictor, "modes", fails)
    sizes: list[int] = []
    batcher = Batcher(predictors, threads=1, on_batch=sizes.append)
    waiting = [batcher.submit("guess-exact", image[None]) for image in x]
    batcher.close()
    assert max(sizes) > 1
    assert [w.exception() is not None for w in waiting] == [i == 2 for i in range(6)]


def test_a_model_that_fails_at_first_is_logged_and_not_ready(predictors, monkeypatch, logged):
    from mue.service.app import build_app
    from mue.service.service import Service
    from mue.service.settings import Settings

    def fails(_):
        raise RuntimeError("secret")

    monkeypatch.setattr(predictors["guess-exact"], "modes", fails)
    service = Service({"guess-exact": predictors["guess-exact"]}, Settings())
    app = build_app(service)

    async def start() -> None:
        async with app.router.lifespan_context(app):
            await asyncio.sleep(0.2)
            assert not await service.is_ready()

    asyncio.run(start())
    said = logged()
    assert "cannot answer" in said
    assert "secret" not in said


def test_the_page_comes_before_the_models(predictors, picture):
    from mue.service.app import create_app

    loading = Future()
    app = create_app(loading)
    form, files = {"model": "guess-exact"}, {"file": ("a.png", picture)}

    async def start() -> None:
        transport = httpx.ASGITransport(app)
        async with (
            lifespan(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            assert (await client.get("/")).status_code == 200
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/readyz")).status_code == 503
            for path in ("/api/models", "/api/examples"):
                found = await client.get(path)
                assert (found.status_code, found.headers["retry-after"]) == (503, "1")
                assert "loading" in found.json()["error"]
            assert (await client.post("/api/propose", data=form, files=files)).status_code == 503
            assert (await client.get("/metrics")).status_code == 200
            loading.set_result({"guess-exact": predictors["guess-exact"]})
            while (await client.get("/readyz")).status_code == 503:
                await asyncio.sleep(0.01)
            assert len((await client.get("/api/models")).json()) == 1
            assert (await client.post("/api/propose", data=form, files=files)).status_code == 200

    asyncio.run(start())


def test_models_that_are_not_there_are_no_defect(logged):
    from mue.service.app import create_app

    loading = Future()
    loading.set_exception(ValueError("no such model"))

    async def start() -> None:
        async with lifespan(create_app(loading)):
            await asyncio.sleep(0.05)

    asyncio.run(start())
    assert not logged()


@contextlib.asynccontextmanager
async def lifespan(app):
    """Start and stop an application, as a server does."""
    asked, said = asyncio.Queue(), asyncio.Queue()
    running = asyncio.create_task(app({"type": "lifespan"}, asked.get, said.put))
    for step in ("startup", "shutdown"):
        await asked.put({"type": f"lifespan.{step}"})
        assert (await said.get())["type"] == f"lifespan.{step}.complete"
        if step == "startup":
            yield
    await running


def test_clients_before_it_is_ready_do_not_keep_it_from_it(predictors):
    from mue.service.batching import Batcher, QueueFullError
    from mue.service.service import Service
    from mue.service.settings import Settings

    class Full(Batcher):
        asked = 0

        def __init__(self):
            pass

        def submit(self, model, x):  # noqa: ARG002
            self.asked += 1
            if self.asked < 3:
                raise QueueFullError
            done = Future()
            done.set_result(None)
            return done

    service = Service(predictors, Settings())
    service._predictors = predictors
    service._batcher = Full()
    asyncio.run(service.warm_up_(["guess-exact"]))
    assert service.ready


def test_an_address_is_logged_without_what_a_client_put_in_it(client):
    client.get("/api/digits/3/4")
    client.get("/page/the-name-of-a-patient")
    text = client.get("/metrics").text
    assert 'path="/api/digits",status="200"' in text
    assert 'path="/page",status="404"' in text
    assert "patient" not in text


def test_the_service_reads_without_a_word_of_libraries(monkeypatch):
    import importlib
    import logging
    import warnings

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


def test_what_libraries_log_is_a_line_of_json_without_contents(logged):
    import json
    import logging

    from mue.service.monitoring import LogLines

    for name in ("python_multipart", "uvicorn.error"):
        record = logging.LogRecord(name, logging.WARNING, "f.py", 7, "got %r", ("Doe",), None)
        LogLines().emit(record)
    library, server = map(json.loads, logged().splitlines())
    assert (library["event"], library["at"]) == ("warning", "f.py:7")
    assert "message" not in library
    assert server["message"] == "got 'Doe'"


def test_logs_hold_no_contents(client, picture, logged, capfd):
    propose(client, picture, "the-name-of-a-patient.png")
    propose(client, b"rubbish", "the-name-of-a-patient.png")
    client.get("/healthz")  # so that the lines of both are there
    said = logged() + capfd.readouterr().err
    assert '"path": "/api/propose"' in said
    assert "patient" not in said


# --- the rest -------------------------------------------------------------------------------------


def test_health_and_metrics(client, picture):
    assert client.get("/readyz").json() == {"status": "ready"}
    propose(client, picture)
    text = client.get("/metrics").text
    assert 'mue_requests_total{path="/api/propose",status="200"}' in text
    assert "mue_batch_size_count" in text


def test_the_description_of_the_interface_has_examples(client):
    found = client.get("/api/openapi.json").json()
    assert {"/api/propose", "/api/models"} <= set(found["paths"])
    assert "example" in found["components"]["schemas"]["Proposal"]


def test_the_description_names_the_token_and_every_error(served, client):
    with served(token=TOKEN) as other:
        asked = other.get("/api/openapi.json", headers={"authorization": f"Bearer {TOKEN}"})
    secured, free = asked.json(), client.get("/api/openapi.json").json()
    assert secured["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert "securitySchemes" not in free["components"]
    for path, methods in secured["paths"].items():
        if path.startswith("/api/"):
            ((_, operation),) = methods.items()
            assert operation["security"] == [{"HTTPBearer": []}], path
            found = operation["responses"]
            assert {"401", "403", "421", "429", "500", "504"} <= set(found), path
            for status, said in found.items():
                content = said.get("content", {}).get("application/json", {})
                assert status == "200" or content["schema"]["$ref"].endswith("/Error"), path


def test_examples_suit_the_models_and_their_raters_sum_to_one(client):
    found = client.get("/api/examples").json()
    assert {e["task"] for e in found} == {"guess", "slices"}
    for example in found:
        assert sum(r["weight"] for r in example["raters"]) == pytest.approx(1)
        model = {"guess": "guess-exact", "slices": "lidc-exact"}[example["task"]]
        answer = propose(client, base64.b64decode(example["image"]), model=model)
        assert answer.status_code == 200


def test_a_phantom_is_the_same_every_time():
    first = examples._phantom(0)
    assert np.array_equal(first.image, examples._phantom(0).image)
    assert len(examples._PHANTOMS) + 4 == len(examples.examples())


def test_digits_are_pictures(client):
    digit = client.get("/api/digits/7/3")
    assert np.asarray(Image.open(io.BytesIO(digit.content))).shape == (28, 28)
    assert client.get("/api/digits/10/0").status_code == 422
