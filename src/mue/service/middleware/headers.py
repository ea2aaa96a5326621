"""Headers of every response, and requests for headers alone."""

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


def add_headers(app: ASGIApp, _: Settings, __: Monitor) -> ASGIApp:
    """Say what a browser may do with a response."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_api = scope["path"].startswith("/api/")
        own = HEADERS | ({"Cache-Control": "no-store"} if is_api else {})
        added = [(k.lower().encode(), v.encode()) for k, v in own.items()]

        async def respond(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        await app(scope, receive, respond)

    return answer


def answer_head(app: ASGIApp, _: Settings, __: Monitor) -> ASGIApp:
    """Answer HEAD as GET; the server leaves the body out."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        await app(asked, receive, send)

    return answer
