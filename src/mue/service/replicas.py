"""The application on replicas of Ray Serve, behind one process that every request passes first."""

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

_ADDRESS = os.environ.get("RAY_ADDRESS")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
if not _ADDRESS:  # Ray of this machine alone: on loopback, with a token that is written nowhere
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)

# ruff: noqa: E402  Ray reads them when it is imported
import ray  # pyright: ignore[reportMissingImports]
from fastapi import FastAPI, Request, Response
from ray import serve  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayError, RayTaskError  # pyright: ignore[reportMissingImports]
from ray.serve.config import AutoscalingConfig  # pyright: ignore[reportMissingImports]
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError  # pyright: ignore[reportMissingImports]
from starlette.types import ASGIApp, Message

from mue.errors import MueError
from mue.inference.predictor import Predictor
from mue.service.app import build_app
from mue.service.errors import RefusedError, add_errors
from mue.service.middleware import guarded
from mue.service.monitoring import Monitor, log_defect
from mue.service.routes import OPEN
from mue.service.service import Service
from mue.service.settings import Settings

_NAME = "mue"  # of the application in Ray Serve
_WAITS = (0.1, 1.0, 5.0)  # seconds before another replica is asked, and another one
_STORE = 256 << 20  # bytes of shared memory for requests and answers on their way
_SHM = "/dev/shm"  # more shared memory for them, where Ray would take a disk  # noqa: S108


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it goes to a replica."""

    method: str
    path: str
    query: bytes
    kind: bytes  # its Content-Type
    body: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """A response as it comes from a replica."""

    status: int
    headers: dict[str, str]
    body: bytes


Forward = Callable[[Asked], Awaitable[Answered]]


class Replica:
    """A process with the models and the whole application, in which batches form."""

    async def __init__(
        self, load: Callable[[], Mapping[str, Predictor]], settings: Settings
    ) -> None:
        service = Service(load(), settings)
        self._app = build_app(service)
        await service.start_(warm=True)  # Ray sends it nothing before

    async def __call__(self, asked: Asked) -> Answered:
        """Answer a request."""
        messages: list[Message] = [{"type": "http.request", "body": asked.body}]
        found: list[Message] = []

        async def receive() -> Message:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            found.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": asked.method,
            "scheme": "http",
            "path": asked.path,
            "raw_path": asked.path.encode(),
            "query_string": asked.query,
            "root_path": "",
            "headers": [(b"content-type", asked.kind)] if asked.kind else [],
            "server": ("localhost", 80),
        }
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # its response is sent before it is raised
            log_defect(error, path=asked.path)
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in found[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in found[1:])
        return Answered(found[0]["status"], headers, body)


class _Front:
    """What the process in front knows."""

    def __init__(self, running: Callable[[], int]) -> None:
        self.monitor, self.running, self.stops = Monitor(), running, False

    async def is_ready(self) -> bool:
        """Whether there is a replica that answers."""
        return not self.stops and await asyncio.to_thread(self.running) > 0


def create_front(
    forward: Forward, settings: Settings, running: Callable[[], int] = lambda: 1
) -> ASGIApp:
    """The application in front of the replicas: checks, pages and health; the rest it forwards.

    `running` counts the replicas that answer.
    """
    front = _Front(running)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        front.stops = True

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.service = front
    for router in OPEN.values():
        app.include_router(router)
    add_errors(app)

    @app.api_route("/api/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
    async def api(request: Request) -> Response:
        asked = Asked(
            request.method,
            request.url.path,
            request.scope["query_string"],
            request.headers.get("content-type", "").encode("latin-1"),
            await request.body(),
        )
        found = await forward(asked)
        return Response(found.body, found.status, found.headers)

    return guarded(app, settings, front.monitor)


def forward_to(remote: Callable[[Asked], Awaitable[Answered]]) -> Forward:
    """Forward requests to replicas, again where one ends before it has answered.

    Every request only reads, so it may be computed twice; but one that ends each replica it comes
    to must not end them all. The limit on time is that of the middleware.
    """

    async def forward(asked: Asked) -> Answered:
        for wait in (*_WAITS, None):
            try:
                return await remote(asked)
            except BackPressureError:
                raise RefusedError(503, "too many images wait; try again", 1) from None
            except RayTaskError:
                raise
            except (RayError, DeploymentUnavailableError):
                if wait is not None:
                    await asyncio.sleep(wait)
        raise RefusedError(503, "no replica could answer; try again", 5)

    return forward


@contextmanager
def replicated(
    load: Callable[[], Mapping[str, Predictor]],
    settings: Settings,
    *,
    replicas: int,
    max_replicas: int,
    gpu: bool,
) -> Iterator[ASGIApp]:
    """Start replicas, on the cluster that RAY_ADDRESS names or on this machine, and end them.

    Each has a core, or a core and a GPU. With `max_replicas` above `replicas` their number follows
    the requests.
    """
    count: dict[str, Any] = {"num_replicas": replicas}
    if max_replicas > replicas:
        scaling = AutoscalingConfig(
            min_replicas=replicas,
            max_replicas=max_replicas,
            target_ongoing_requests=2 * settings.batch,
        )
        count = {"autoscaling_config": scaling}
    deployment = serve.deployment(
        Replica,
        name="replica",
        max_ongoing_requests=4 * settings.batch,
        max_queued_requests=settings.queue,
        health_check_period_s=2.0,
        graceful_shutdown_timeout_s=settings.seconds,
        ray_actor_options={"num_cpus": 1, "num_gpus": int(gpu)},
        **count,
    )
    _connect(max_replicas)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # what Ray does leaves replicas behind
    try:
        serve.start(proxy_location="Disabled")
        try:
            bound = deployment.bind(load, settings)  # pyright: ignore[reportFunctionMemberAccess]
            handle = serve.run(bound, name=_NAME, route_prefix=None)
        except RuntimeError as error:
            raise MueError(f"the replicas do not start: {_first_line(error)}") from None
        try:

            async def remote(asked: Asked) -> Answered:
                response = handle.remote(asked)
                try:
                    return await response
                except asyncio.CancelledError:  # its client has gone, or its time has
                    response.cancel()
                    raise

            yield create_front(forward_to(remote), settings, _running)
        finally:
            serve.delete(_NAME)
    finally:
        ray.shutdown()


def _running() -> int:
    """How many replicas have loaded and tried their models, and answer."""
    try:
        (deployment,) = serve.status().applications[_NAME].deployments.values()
    except (RayError, KeyError):
        return 0
    return sum(n for state, n in deployment.replica_states.items() if state == "RUNNING")


def _connect(cores: int) -> None:
    """Join the cluster that RAY_ADDRESS names, or start Ray for this machine alone.

    Alone, it writes no upload to a disk: what its store has no room for stays in shared memory.
    """
    own: dict[str, Any] = {
        "num_cpus": max(os.cpu_count() or 1, cores),
        "object_store_memory": _STORE,
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
        "_system_config": {"automatic_object_spilling_enabled": False},
        "object_spilling_directory": _SHM if os.path.isdir(_SHM) else None,
    }
    try:
        ray.init(address=_ADDRESS, log_to_driver=False, **({} if _ADDRESS else own))
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise MueError(f"Ray does not start: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
