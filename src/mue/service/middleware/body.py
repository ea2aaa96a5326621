"""The bodies of requests: which are read, how large one may be, and all of them together."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.routes import addresses
from mue.service.settings import Settings


def read_body(app: ASGIApp, settings: Settings, monitor: Monitor) -> ASGIApp:
    """Read the body of an upload, up to the size that it claims, while there is memory for it.

    An upload is a POST to a route that takes one; any other body is ignored.
    """
    uploads = {path for path, methods in addresses() if "POST" in methods}
    held = 0  # bytes of the requests at work
    monitor.gauge_("mue_request_bytes", lambda: held)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal held
        chunks, size = list[bytes](), 0
        more = scope["method"] == "POST" and scope["path"] in uploads
        limit = _limit(Headers(scope=scope), settings.body) if more else 0
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusedError(400, "the request ended before its body")
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                held += len(chunks[-1])
                if size > limit:
                    raise RefusedError(413, f"a request may have {settings.body} bytes")
                if held > settings.memory:
                    raise RefusedError(503, "the service is busy; try again", 1)
                more = message.get("more_body", False)
            whole = [b"".join(chunks)]
            chunks.clear()

            async def replay() -> Message:
                if not whole:
                    return await receive()
                return {"type": "http.request", "body": whole.pop(), "more_body": False}

            await app(scope, replay, send)
        finally:
            held -= size

    return answer


def _limit(headers: Headers, most: int) -> int:
    """Bytes that are read of an upload: what it claims, or the most that are."""
    claimed = headers.get("content-length", "")
    if claimed and not (claimed.isdecimal() and len(claimed) < 19):  # of Latin-1: in ASCII
        raise RefusedError(400, "Content-Length must be a number of bytes")
    size = int(claimed) if claimed else most
    if size > most:
        raise RefusedError(413, f"a request may have {most} bytes, got {size}")
    return size
