"""How tests ask the service."""

import asyncio
import base64
import contextlib
import gzip
import io
import time

import nibabel as nib
import numpy as np
from PIL import Image

TOKEN = "a-token-of-enough-characters"


def propose(client, content: bytes, name: str = "a.png", **form):
    form = {"model": "lidc-exact", **form}
    return client.post("/api/propose", files={"file": (name, content)}, data=form)


def export(client, files: list[tuple[str, bytes]], **form):
    form = {"model": "lidc-exact", **form}
    return client.post("/api/export", files=[("file", file) for file in files], data=form)


def counters(client, *lines: str) -> str:
    """`/metrics` with these lines: a request is counted only after its last byte is sent."""
    until = time.monotonic() + 60
    while not all(line in (text := client.get("/metrics").text) for line in lines):
        assert time.monotonic() < until, text
        time.sleep(0.05)
    return text


def decoded(mask: dict) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(mask["png"]))))


def nifti(values: np.ndarray, affine: np.ndarray) -> bytes:
    return gzip.compress(nib.Nifti1Image(values, affine).to_bytes())


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
