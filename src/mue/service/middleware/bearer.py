"""The token that clients must send."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.settings import Settings


class Bearer:
    """Refuses whoever has no token, where one is set; the page and `/healthz` are free."""

    def __init__(self, app: ASGIApp, settings: Settings, _: Monitor) -> None:
        self._app, self._token = app, settings.token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        asks = scope["path"].startswith("/api/") or scope["path"] == "/metrics"
        if self._token is not None and asks:
            kind, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
            same = hmac.compare_digest(given.strip().encode(), self._token.encode())
            if kind.lower() != "bearer" or not same:
                raise RefusedError(401, "this needs the header `Authorization: Bearer TOKEN`")
        await self._app(scope, receive, send)
