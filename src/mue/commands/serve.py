"""`mue serve`: the models as a service, and a page to look at their answers."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from mue.commands.models import Model, load_models
from mue.errors import MueError
from mue.inference.predictor import Predictor
from mue.runtime.devices import Device
from mue.runtime.environment import keep_freed_memory
from mue.version import __version__

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from mue.service.service import Loading

MODELS = ("lidc-exact", "lidc-probunet", "guess-exact", "guess-probunet")
"""What is served where no model is named."""
_LIBRARIES = ("PIL", "nibabel", "nibabel.global", "pydicom", "tifffile")  # they log what they read
_STOP = 30  # seconds to finish what is at work


def serve(
    models: Sequence[Model],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    name: Sequence[str] = (),
    proxy: str | None = None,
    rate: float = 50.0,
    batch: int = 8,
    replicas: int = 1,
    max_replicas: int | None = None,
    device: Device = "auto",
) -> None:
    """Answer images over HTTP, and show the answers on a page, until it is stopped.

    Args:
        models: Bundled models, run folders or predictors; without any, bundled ones.
        host: Address to listen on. Any but this machine's own needs a token.
        port: Port to listen on.
        token: What clients must send as `Authorization: Bearer TOKEN`; the variable MUE_TOKEN
            gives it without showing it in a list of processes.
        name: Names under which it may be addressed, besides localhost and IP addresses. They
            need a token.
        proxy: Address of a proxy whose X-Forwarded-For is believed. It needs a token.
        rate: Requests per second that one client may send on average; 0 for no limit.
        batch: Images that are computed together, at most.
        replicas: Processes that compute; more than one are those of Ray Serve (extra `ray`).
        max_replicas: Up to how many there may be while requests wait; by default `replicas`.
        device: Where to compute.
    """
    try:
        import uvicorn

        from mue.service.app import create_app
        from mue.service.connection import TimedConnection
        from mue.service.monitoring import LogLines
        from mue.service.settings import Settings, is_loopback
    except ModuleNotFoundError as error:
        raise MueError(
            f"`mue serve` needs the package {error.name}; run `pip install '.[serve]'` in "
            "its checkout"
        ) from None
    token = token or os.environ.get("MUE_TOKEN") or None
    if token is None and not is_loopback(host):
        raise MueError(
            f"`token` must be given to listen on {host}, which others can reach; set MUE_TOKEN, or "
            "listen on 127.0.0.1"
        )
    if token is None and (name or proxy is not None):
        given = f"proxy {proxy}" if proxy is not None else f"name {name[0]}"
        raise MueError(
            f"`token` must be given with --{given}, through which others can reach it; set "
            "MUE_TOKEN, or leave that out"
        )
    if not 0 <= port < 1 << 16:
        raise MueError(f"`port` must be in 0..65535, got {port}")
    lines = LogLines(logging.WARNING)
    logging.basicConfig(handlers=[lines])  # unless a program has its own
    settings = Settings(token=token, names=tuple(name), rate=rate, batch=batch)
    limit = replicas if max_replicas is None else max_replicas
    if not 1 <= replicas <= limit:
        raise MueError(f"`replicas` must be in 1..{limit}, got {replicas}; see --max-replicas")
    replicated = _replicated() if limit > 1 else None
    load = functools.partial(_load, list(models) or list(MODELS), device)
    with contextlib.ExitStack() as running:
        listening = running.enter_context(_bind(host, port))
        shown = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/"
        loading: Loading = Future()
        if replicated is None:
            executor = running.enter_context(ThreadPoolExecutor(1, "loading"))
            loading = executor.submit(load)
            app = create_app(loading, settings)
        else:
            predictors = load()  # to check them: each replica has its own
            gpu = any(p.device.type == "cuda" for p in predictors.values())
            numbers = {"replicas": replicas, "max_replicas": limit, "gpu": gpu}
            app = running.enter_context(replicated(load, settings, **numbers))
        print(f"mue {__version__} serves {shown}", file=sys.stderr)  # noqa: T201
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            loop="asyncio",  # uvloop, which Ray brings, has other buffers
            http=TimedConnection,
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=proxy is not None,
            forwarded_allow_ips=proxy,
            timeout_graceful_shutdown=_STOP,
            h11_max_incomplete_event_size=1 << 16,
        )
        server = uvicorn.Server(config)

        def stop_without_models(done: Loading) -> None:
            if done.exception() is not None:
                server.should_exit = True

        loading.add_done_callback(stop_without_models)
        server.run(sockets=[listening])
        if loading.done():
            loading.result()


def _bind(host: str, port: int) -> socket.socket:
    """A socket with the address, before anything is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # named TCP, or asyncio leaves Nagle's algorithm on, and each answer waits 40 ms for its end
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # on Windows it would share the port with another program
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except (OSError, UnicodeError) as error:
        found.close()
        raise MueError(
            f"`mue serve` cannot listen on {host}, port {port}: {error}; "
            "choose another --host or --port"
        ) from None
    return found


def _load(models: list[Model], device: Device) -> dict[str, Predictor]:
    """The models by their names; a replica calls it, too.

    So neither says what it reads, and both keep the memory of one batch for the next.
    """
    keep_freed_memory()
    warnings.simplefilter("ignore")
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(logging.CRITICAL + 1)
    found = load_models(models, device=device)
    for model in found:
        if model.predictor.network.axes != 3:
            raise MueError(f"{model.name} answers vectors; the service is for models of images")
    return {model.name: model.predictor for model in found}


def _replicated() -> Callable[..., AbstractContextManager[ASGIApp]]:
    """Ray Serve, which is imported only here."""
    try:
        from mue.service.replicas import replicated
    except ModuleNotFoundError as error:
        raise MueError(
            f"`mue serve --replicas` needs the package {error.name}; run "
            "`pip install '.[serve,ray]'` in its checkout"
        ) from None
    return replicated
