import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Thread

import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image

import mue
from mue.inference.predictor import Predictor
from mue.service.app import create_app
from mue.service.settings import Settings

Serve = Callable[..., AbstractContextManager[httpx.Client]]


@pytest.fixture(scope="session")
def predictors() -> dict[str, Predictor]:
    return {name: mue.load(name) for name in ("lidc-exact", "guess-exact", "guess-probunet")}


@pytest.fixture(scope="session")
def served(predictors) -> Serve:
    """Starts the service on a free port, with settings, and gives a client of it."""

    @contextmanager
    def serve(port: int = 0, **settings) -> Iterator[httpx.Client]:
        app = create_app(predictors, Settings(**settings), warm=False)
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical"))
        thread = Thread(target=server.run)
        thread.start()
        while not server.started and thread.is_alive():
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            with httpx.Client(base_url=f"http://localhost:{port}", timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()

    return serve


@pytest.fixture(scope="session")
def client(served) -> Iterator[httpx.Client]:
    with served() as found:
        yield found


@pytest.fixture(scope="session")
def picture() -> bytes:
    """A bright disc, as PNG."""
    y, x = np.mgrid[:64, :64] - 32
    buffer = io.BytesIO()
    Image.fromarray(np.where(x**2 + y**2 < 80, 200, 40).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()
