"""Damaged and malicious uploads: each is refused with a sentence, in time, and the service lives.

`MUE_MALFORMED=10000` sends as many as the bar asks for; by default there are a few hundred.
"""

import gzip
import io
import os
import struct
import time
import zlib
from collections.abc import Iterator

import nibabel as nib
import numpy as np
import pytest
import tifffile
from PIL import Image

COUNT = int(os.environ.get("MUE_MALFORMED", "300"))
RANDOM = np.random.default_rng(0)


def seeds() -> dict[str, bytes]:
    """A good file of every kind."""
    grey = RANDOM.integers(0, 255, (32, 32), dtype=np.uint8)
    found: dict[str, bytes] = {}
    for name, kind in {"a.png": "PNG", "a.jpg": "JPEG", "a.gif": "GIF", "a.webp": "WEBP"}.items():
        buffer = io.BytesIO()
        Image.fromarray(grey).save(buffer, kind)
        found[name] = buffer.getvalue()
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, grey, compression="zlib")
    found["a.tif"] = buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, grey)
    found["a.npy"] = buffer.getvalue()
    found["a.nii"] = nib.Nifti1Image(grey[:, :, None], np.eye(4)).to_bytes()
    found["a.nii.gz"] = gzip.compress(found["a.nii"])
    found["a.dcm"] = b"\0" * 128 + b"DICM" + RANDOM.bytes(400)
    return found


def chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few kilobytes that claims to be huge, with all checksums right."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * (1 << 20))
    parts = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*p) for p in parts)


def malformed() -> Iterator[tuple[str, bytes]]:
    good, names = seeds(), list(seeds())
    yield "a.png", bomb(100_000, 100_000)
    yield "a.png", bomb(1 << 31, 1)
    yield "a.nii.gz", gzip.compress(good["a.nii"] + b"\0" * (1 << 26))
    for i in range(COUNT):
        name = names[i % len(names)]
        content = bytearray(good[name])
        kind = RANDOM.integers(4)
        if kind == 0:
            del content[RANDOM.integers(1, len(content)) :]
        elif kind == 1:
            for _ in range(RANDOM.integers(1, 8)):
                content[RANDOM.integers(len(content))] ^= 1 << int(RANDOM.integers(8))
        elif kind == 2:  # in the header, where sizes are
            content[int(RANDOM.integers(min(len(content), 80)))] = int(RANDOM.choice([0, 127, 255]))
        else:
            name = names[RANDOM.integers(len(names))]
        yield name, bytes(content)


def test_no_upload_breaks_the_service(served):
    with served(rate=0.0) as client:
        slowest = 0.0
        for name, content in malformed():
            began = time.perf_counter()
            form = {"model": "guess-exact", "masks": "none", "k": "1"}
            found = client.post("/api/propose", files={"file": (name, content)}, data=form)
            assert found.status_code in (200, 422), (name, found.status_code, found.text)
            if found.status_code == 422:
                slowest = max(slowest, time.perf_counter() - began)
                assert set(found.json()) == {"error"}
        assert client.get("/readyz").status_code == 200
    assert slowest < 10, slowest  # a second on a machine that does nothing else


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
