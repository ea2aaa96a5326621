"""What every request passes before the application sees it."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.monitoring import Monitor, log
from mue.service.settings import Settings, host_allowed

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
_CLIENTS = 10_000  # whose requests are counted at a time
_UPLOADS = ("/api/propose", "/api/export")  # only a POST to these has a body that is read
_PATHS = (
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/models",
    "/api/propose",
    "/api/export",
    "/api/examples",
    "/api/openapi.json",
)
_FOLDERS = ("/api/digits", "/page")


class RefusedError(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: int, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry_after = status, retry_after


class RateLimit:
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


@dataclass(slots=True)
class _Held:
    """Bytes of a request that have come so far."""

    size: int = 0


class Guard:
    """Checks of who asks, limits of size, time and number, headers, one log line per request."""

    def __init__(self, app: ASGIApp, settings: Settings, monitor: Monitor) -> None:
        self._app, self._settings, self._monitor = app, settings, monitor
        self._rate = RateLimit(settings.rate, settings.burst)
        self._held = 0  # bytes of the requests at work
        monitor.gauge_("mue_request_bytes", lambda: self._held)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began, status, held = time.perf_counter(), 0, _Held()
        request = secrets.token_hex(8)
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        path = _logged(scope["path"])
        # the body of an answer to HEAD is left out by the server
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {**HEADERS, "X-Request-Id": request}
                if scope["path"].startswith("/api/"):
                    own["Cache-Control"] = "no-store"
                message["headers"] = [
                    *message.get("headers", []),
                    *((k.lower().encode(), v.encode()) for k, v in own.items()),
                ]
            await send(message)

        try:
            self._check(scope, headers)
            is_upload = scope["method"] == "POST" and scope["path"] in _UPLOADS
            limit = self._limit(headers) if is_upload else 0
            try:
                async with asyncio.timeout(self._settings.seconds) as time_limit:
                    body = await self._body(receive, limit, held) if is_upload else b""
                    await self._answer(asked, body, receive, respond, time_limit)
            except TimeoutError:
                raise RefusedError(
                    504, f"the request took longer than {self._settings.seconds:g} s", 5
                ) from None
        except RefusedError as refused:
            if status:
                status = refused.status
            else:
                await _say(respond, refused)
        except Exception as error:
            log_defect(error, request=request, path=path)
            if not status:
                await _say(
                    respond, RefusedError(500, "the service failed; its log names the place")
                )
        finally:
            self._held -= held.size
            seconds = time.perf_counter() - began
            self._monitor.request_(path, status, seconds)
            log(
                "request",
                request=request,
                method=scope["method"][:8],
                path=path,
                status=status,
                ms=round(1000 * seconds, 1),
            )

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        """Refuse who may not ask."""
        settings, path = self._settings, scope["path"]
        if not host_allowed(host := headers.get("host", ""), settings.names):
            raise RefusedError(
                421, "the service is not known under this name; start it with --name NAME"
            )
        cross_site = headers.get("sec-fetch-site") == "cross-site" and not _is_link(scope, headers)
        if cross_site or not _same_site(headers.get("origin", ""), host):
            raise RefusedError(403, "requests from pages of other sites are refused")
        if path in ("/healthz", "/readyz"):
            return
        client = scope["client"][0] if scope.get("client") else ""
        if not self._rate.allow_(client, time.monotonic()):
            raise RefusedError(
                429, f"a client may send {settings.rate:g} requests per second; wait", 1
            )
        if settings.token is not None and (path.startswith("/api/") or path == "/metrics"):
            kind, _, given = headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(given.strip().encode(), settings.token.encode())
            if kind.lower() != "bearer" or not same:
                raise RefusedError(401, "this needs the header `Authorization: Bearer TOKEN`")

    def _limit(self, headers: dict[str, str]) -> int:
        """Bytes that are read of an upload: what it claims, or the most that are."""
        settings = self._settings
        claimed = headers.get("content-length", "")
        if claimed and not (claimed.isascii() and claimed.isdecimal() and len(claimed) < 19):
            raise RefusedError(400, "Content-Length must be a number of bytes")
        size = int(claimed) if claimed else settings.body
        if size > settings.body:
            raise RefusedError(413, f"a request may have {settings.body} bytes, got {size}")
        return size

    async def _answer(
        self,
        scope: Scope,
        body: bytes,
        receive: Receive,
        send: Send,
        time_limit: asyncio.Timeout,
    ) -> None:
        """Let the application answer, unless the client goes and nobody waits for it.

        A client that reads the answer slowly has the time of its connection.
        """
        found = list[Message]()

        async def keep(message: Message) -> None:
            found.append(message)

        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        answering = asyncio.ensure_future(self._app(scope, replay, keep))
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise RefusedError(499, "the client closed the connection")
            await answering
            time_limit.reschedule(None)
            head, *parts = found
            content = b"".join(part.get("body", b"") for part in parts)
            await send(head)
            for part in (content, b""):  # the second waits until the first is taken
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)
            if gone.done():
                raise RefusedError(499, "the client closed the connection, or did not read")
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for task in (answering, gone):
                task.cancel()
            await asyncio.wait((answering, gone))

    async def _body(self, receive: Receive, limit: int, held: _Held) -> bytes:
        """Read the body, up to the size that was claimed, while there is memory for what comes."""
        chunks, more = list[bytes](), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RefusedError(400, "the request ended before its body")
            chunks.append(message.get("body", b""))
            held.size += len(chunks[-1])
            self._held += len(chunks[-1])
            if held.size > limit:
                raise RefusedError(413, f"a request may have {self._settings.body} bytes")
            if self._held > self._settings.memory:
                raise RefusedError(503, "the service is busy; try again", 1)
            more = message.get("more_body", False)
        return b"".join(chunks)


def _logged(path: str) -> str:
    """An address as logs and counters have it: one of ours, without what a client put in it."""
    below = next((name for name in _FOLDERS if path.startswith(f"{name}/")), "other")
    return path if path in _PATHS else below


def _is_link(scope: Scope, headers: dict[str, str]) -> bool:
    """Whether somebody follows a link to the page; it is not shown in a frame of another site."""
    mode, kind = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    is_page = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
    return is_page and (mode, kind) == ("navigate", "document")


def _same_site(origin: str, host: str) -> bool:
    """Whether a request comes from a page of ours, or from no page."""
    try:
        return not origin or urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # no address at all
        return False


async def _until_gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def log_defect(error: Exception, **values: str) -> None:
    """A line with the place of an error, without its words: they may hold what was sent."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    at = "" if where is None else f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}"
    log("defect", **values, error=type(error).__name__, at=at)


async def _say(send: Send, refused: RefusedError) -> None:
    body = json.dumps({"error": str(refused)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if refused.retry_after is not None:
        headers.append((b"retry-after", b"%d" % refused.retry_after))
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
