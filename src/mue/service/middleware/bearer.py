"""The token that clients must send."""

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.settings import Settings


def check_token(app: ASGIApp, settings: Settings, _: Monitor) -> ASGIApp:
    """Refuse whoever has no token, where one is set; the page and `/healthz` are free."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        asks = scope["path"].startswith("/api/") or scope["path"] == "/metrics"
        if settings.token is not None and asks:
            kind, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
            same = hmac.compare_digest(given.strip().encode(), settings.token.encode())
            if kind.lower() != "bearer" or not same:
                raise RefusedError(401, "this needs the header `Authorization: Bearer TOKEN`")
        await app(scope, receive, send)

    return answer
