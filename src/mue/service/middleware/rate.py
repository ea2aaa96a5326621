"""How many requests a client may send."""

import time
from collections import OrderedDict

from starlette.types import ASGIApp, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.settings import Settings

_UNCOUNTED = ("/healthz", "/readyz")


class TokenBuckets:
    """A token bucket for each client: `burst` at once, `rate` per second on average.

    Of `clients` at a time: beyond that, the one that was silent longest is forgotten.
    """

    def __init__(self, rate: float, burst: int, clients: int = 10_000) -> None:
        self._rate, self._burst, self._most = rate, burst, clients
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow_(self, client: str, now: float) -> bool:
        """Count a request, and say whether it is within the limit."""
        if not self._rate:
            return True
        tokens, last = self._clients.pop(client, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - last) * self._rate)
        allowed = tokens >= 1
        self._clients[client] = (tokens - allowed, now)
        if len(self._clients) > self._most:
            self._clients.popitem(last=False)
        return allowed


def limit_rate(app: ASGIApp, settings: Settings, _: Monitor) -> ASGIApp:
    """Refuse a client that sends too many requests."""
    buckets = TokenBuckets(settings.rate, settings.burst)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        client = scope["client"][0] if scope.get("client") else ""
        if scope["path"] not in _UNCOUNTED and not buckets.allow_(client, time.monotonic()):
            raise RefusedError(
                429, f"a client may send {settings.rate:g} requests per second; wait", 1
            )
        await app(scope, receive, send)

    return answer
