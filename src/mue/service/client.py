"""A client of `mue serve` in one file, which needs the standard library alone.

    client = Client("http://127.0.0.1:8000")
    found = client.propose("slice.png", model="lidc-exact", coverage=0.9)
    for mode in found["modes"]:
        print(mode["rank"], mode["prob"], mode["mask"]["png"])

It tries again while the service is busy or restarts.
"""

import contextlib
import http.client
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Image = str | Path | bytes | Sequence[str | Path]
_BUSY = (429, 502, 503, 504)
_WAIT = 0.5  # seconds before another try, where the service does not say


class ServiceError(Exception):
    """What the service says is wrong, with its status; 0 where it cannot be reached."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Connection(http.client.HTTPConnection):
    """Asks for the answer even if the service did not take the whole body: it says why."""

    def request(self, *args: Any, **options: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # or reading fails, too
            super().request(*args, **options)


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    """The same over TLS."""


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, req)


class Client:
    """Asks a service for the answers to images."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        patience: float = 60.0,
    ) -> None:
        self._url, self._token, self._patience = url.rstrip("/"), token, patience
        self._opener = urllib.request.build_opener(_Handler)
        if not self._url.startswith(("http://", "https://")):
            raise ValueError(f"`url` must begin with http:// or https://, got {url!r}")

    def models(self) -> list[dict[str, Any]]:
        """The models, and what each can be asked."""
        return json.loads(self._request("/api/models"))

    def propose(
        self, image: Image, *, model: str, name: str = "image", **asked: Any
    ) -> dict[str, Any]:
        """The modes of an image, the most probable first.

        Args:
            image: A file, the files of a DICOM series in any order, or the content of a file,
                called `name` then: volumes end in .nii or .nii.gz.
            model: A name of `models()`.
            name: What the content is called.
            asked: k, by, coverage, cut, slice, masks, details: see /api/openapi.json.
        """
        return json.loads(self._post("/api/propose", image, name, {"model": model, **asked}))

    def export(self, image: Image, *, model: str, name: str = "image", **asked: Any) -> bytes:
        """The same as a file: `format` is nifti, dicom-seg or npz."""
        return self._post("/api/export", image, name, {"model": model, **asked})

    def _post(self, path: str, image: Image, name: str, values: Mapping[str, Any]) -> bytes:
        if isinstance(image, bytes):
            files = [(name, image)]
        else:
            paths = [image] if isinstance(image, str | Path) else image
            files = [(Path(p).name, Path(p).read_bytes()) for p in paths]
        boundary = secrets.token_hex(16)
        start = f"--{boundary}\r\nContent-Disposition: form-data; name="
        parts = [
            f'{start}"{key}"\r\n\r\n{value}\r\n'.encode()
            for key, value in values.items()
            if value is not None
        ]
        for name, content in files:
            quoted = name.translate({10: "%0A", 13: "%0D", 34: "%22"})  # as browsers do
            parts += [f'{start}"file"; filename="{quoted}"\r\n\r\n'.encode(), content, b"\r\n"]
        body = b"".join([*parts, f"--{boundary}--\r\n".encode()])
        return self._request(path, body, f"multipart/form-data; boundary={boundary}")

    def _request(self, path: str, body: bytes | None = None, kind: str = "") -> bytes:
        headers = {"Content-Type": kind} if kind else {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._url + path, body, headers)  # noqa: S310
        until = time.monotonic() + self._patience
        while True:
            try:
                with self._opener.open(request, timeout=self._patience) as found:
                    return found.read()
            except urllib.error.HTTPError as error:
                wait = _wait(error.headers.get("Retry-After", ""))
                failed = ServiceError(error.code, _sentence(error))
                if error.code not in _BUSY:
                    raise failed from None
            except (OSError, http.client.HTTPException) as error:  # also in the middle of an answer
                wait, failed = _WAIT, ServiceError(0, f"{self._url} cannot be reached: {error}")
            if time.monotonic() + wait > until:
                raise failed from None
            time.sleep(wait)


def _wait(said: str) -> float:
    """Seconds that the service asks for; a proxy may say a date instead."""
    return float(said) if said.isascii() and said.isdecimal() else _WAIT


def _sentence(error: urllib.error.HTTPError) -> str:
    body = b""
    try:
        body = error.read()
        return str(json.loads(body)["error"])
    except (OSError, http.client.HTTPException):
        return error.reason
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
