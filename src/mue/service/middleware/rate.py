"""How many requests a client may send."""

from __future__ import annotations

import time
from collections import OrderedDict

from starlette.types import ASGIApp, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.settings import Settings

_CLIENTS = 10_000  # whose requests are counted at a time
_UNCOUNTED = ("/healthz", "/readyz")


class TokenBuckets:
    """A token bucket for each client: `burst` at once, `rate` per second on average."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow_(self, client: str, now: float) -> bool:
        """Count a request, and say whether it is within the limit."""
        if not self._rate:
            return True
        tokens, last = self._clients.pop(client, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - last) * self._rate)
        allowed = tokens >= 1
        self._clients[client] = (tokens - allowed, now)
        if len(self._clients) > _CLIENTS:
            self._clients.popitem(last=False)
        return allowed


class Rate:
    """Refuses a client that sends too many requests."""

    def __init__(self, app: ASGIApp, settings: Settings, _: Monitor) -> None:
        self._app, self._rate = app, settings.rate
        self._buckets = TokenBuckets(settings.rate, settings.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        client = scope["client"][0] if scope.get("client") else ""
        counted = scope["path"] not in _UNCOUNTED
        if counted and not self._buckets.allow_(client, time.monotonic()):
            raise RefusedError(
                429, f"a client may send {self._rate:g} requests per second; wait", 1
            )
        await self._app(scope, receive, send)
