"""The time that a request may take."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.settings import Settings


class Deadline:
    """Ends a request whose response has not begun in time.

    A client that reads the response slowly has the time of its connection.
    """

    def __init__(self, app: ASGIApp, settings: Settings, _: Monitor) -> None:
        self._app, self._seconds = app, settings.seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            async with asyncio.timeout(self._seconds) as limit:

                async def respond(message: Message) -> None:
                    limit.reschedule(None)
                    await send(message)

                await self._app(scope, receive, respond)
        except TimeoutError:
            raise RefusedError(
                504, f"the request took longer than {self._seconds:g} s", 5
            ) from None
