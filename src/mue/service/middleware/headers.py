"""Headers of every response, and requests for headers alone."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.monitoring import Monitor
from mue.service.settings import Settings

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Headers:
    """What a browser may do with a response."""

    def __init__(self, app: ASGIApp, _: Settings, __: Monitor) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        own = dict(HEADERS)
        if scope["path"].startswith("/api/"):
            own["Cache-Control"] = "no-store"
        added = [(k.lower().encode(), v.encode()) for k, v in own.items()]

        async def respond(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        await self._app(scope, receive, respond)


class Head:
    """HEAD is answered as GET; the server leaves the body out."""

    def __init__(self, app: ASGIApp, _: Settings, __: Monitor) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        await self._app(asked, receive, send)
