"""What every request passes before the application sees it: one job a file, in one order."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from mue.service.middleware.bearer import Bearer
from mue.service.middleware.body import Body
from mue.service.middleware.client import Client
from mue.service.middleware.deadline import Deadline
from mue.service.middleware.headers import Head, Headers
from mue.service.middleware.lines import Lines
from mue.service.middleware.origin import Origin
from mue.service.middleware.rate import Rate
from mue.service.middleware.refusals import Refusals
from mue.service.monitoring import Monitor
from mue.service.settings import Settings

ORDER: tuple[Callable[[ASGIApp, Settings, Monitor], ASGIApp], ...] = (
    Headers,
    Lines,
    Refusals,
    Origin,
    Rate,
    Bearer,
    Deadline,
    Body,
    Client,
    Head,
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
