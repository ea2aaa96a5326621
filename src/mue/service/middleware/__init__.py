"""What every request passes before the application sees it: one job a file, in one order."""

from starlette.types import ASGIApp, Receive, Scope, Send

from mue.service.middleware.bearer import check_token
from mue.service.middleware.body import read_body
from mue.service.middleware.client import watch_client
from mue.service.middleware.deadline import limit_time
from mue.service.middleware.headers import add_headers, answer_head
from mue.service.middleware.origin import check_origin
from mue.service.middleware.outcome import end_request
from mue.service.middleware.rate import limit_rate
from mue.service.monitoring import Monitor
from mue.service.settings import Settings

ORDER = (
    add_headers,
    end_request,
    check_origin,
    limit_rate,
    check_token,
    limit_time,
    read_body,
    watch_client,
    answer_head,
)


def guarded(app: ASGIApp, settings: Settings, monitor: Monitor) -> ASGIApp:
    """An application behind all of them; nothing but HTTP gets through."""
    guard = app
    for middleware in reversed(ORDER):
        guard = middleware(guard, settings, monitor)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await guard(scope, receive, send)
        elif scope["type"] == "lifespan":
            await app(scope, receive, send)

    return answer
