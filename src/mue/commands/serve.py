"""`mue serve`: the models as a service, and a page to look at their answers."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from mue.commands.report import Model, load_models
from mue.devices import Device
from mue.errors import MueError
from mue.version import __version__

MODELS = ("lidc-exact", "lidc-probunet", "guess-exact", "guess-probunet")
"""What is served where no model is named."""
_LIBRARIES = ("PIL", "nibabel.global", "pydicom", "tifffile")  # they log what they read
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
    device: Device = "auto",
) -> None:
    """Answer images over HTTP, and show the answers on a page, until it is stopped.

    Args:
        models: Bundled models, run folders or predictors; without any, bundled ones.
        host: Address to listen on. Any but this machine's own needs a token.
        port: Port to listen on.
        token: What clients must send as `Authorization: Bearer TOKEN`; the variable MUE_TOKEN
            gives it without showing it in a list of processes.
        name: Names under which it may be addressed, besides localhost and IP addresses.
        proxy: Address of a proxy whose X-Forwarded-For is believed.
        rate: Requests per second that one client may send on average; 0 for no limit.
        batch: Images that are computed together, at most.
        device: Where to compute.
    """
    try:
        import uvicorn

        from mue.service.app import create_app
        from mue.service.settings import Settings, is_loopback
    except ModuleNotFoundError as error:
        raise MueError(
            f"`mue serve` needs the package {error.name}; run `pip install 'mue[serve]'`"
        ) from None
    token = token or os.environ.get("MUE_TOKEN") or None
    if not is_loopback(host) and token is None:
        raise MueError(
            f"`token` must be given to listen on {host}, which others can reach; set MUE_TOKEN, or "
            "listen on 127.0.0.1"
        )
    if not 0 <= port < 1 << 16:
        raise MueError(f"`port` must be in 0..65535, got {port}")
    settings = Settings(token=token, names=tuple(name), rate=rate, batch=batch)
    for library in _LIBRARIES:
        logging.getLogger(library).disabled = True
    loaded = load_models(list(models) or MODELS, device=device)
    app = create_app({m.name: m.predictor for m in loaded}, settings)
    shown = f"[{host}]" if ":" in host else host
    print(f"mue {__version__} serves http://{shown}:{port}/", file=sys.stderr)  # noqa: T201
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=proxy is not None,
        forwarded_allow_ips=proxy,
        timeout_graceful_shutdown=_STOP,
        h11_max_incomplete_event_size=1 << 16,
    )
