"""The bodies of requests: which are read, how large one may be, and all of them together."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.routes import addresses
from mue.service.settings import Settings


class Body:
    """Reads the body of an upload, up to the size that it claims, while there is memory for it.

    An upload is a POST to a route that takes one; any other body is ignored.
    """

    def __init__(self, app: ASGIApp, settings: Settings, monitor: Monitor) -> None:
        self._app, self._settings = app, settings
        self._uploads = {path for path, methods in addresses() if "POST" in methods}
        self._held = 0  # bytes of the requests at work
        monitor.gauge_("mue_request_bytes", lambda: self._held)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        chunks, size = list[bytes](), 0
        more = scope["method"] == "POST" and scope["path"] in self._uploads
        limit = self._limit(Headers(scope=scope)) if more else 0
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusedError(400, "the request ended before its body")
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                self._held += len(chunks[-1])
                if size > limit:
                    raise RefusedError(413, f"a request may have {self._settings.body} bytes")
                if self._held > self._settings.memory:
                    raise RefusedError(503, "the service is busy; try again", 1)
                more = message.get("more_body", False)
            body = b"".join(chunks)
            chunks.clear()
            whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
            del body

            async def replay() -> Message:
                return whole.pop() if whole else await receive()

            await self._app(scope, replay, send)
        finally:
            self._held -= size

    def _limit(self, headers: Headers) -> int:
        """Bytes that are read of an upload: what it claims, or the most that are."""
        most, claimed = self._settings.body, headers.get("content-length", "")
        if claimed and not (claimed.isascii() and claimed.isdecimal() and len(claimed) < 19):
            raise RefusedError(400, "Content-Length must be a number of bytes")
        size = int(claimed) if claimed else most
        if size > most:
            raise RefusedError(413, f"a request may have {most} bytes, got {size}")
        return size
