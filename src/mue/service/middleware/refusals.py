"""Errors of the middleware and of the application as responses."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.errors import FAILED, RefusedError, say
from mue.service.monitoring import Monitor
from mue.service.settings import Settings


class Refusals:
    """Says what is wrong; a defect, and what goes wrong within a response, is raised again."""

    def __init__(self, app: ASGIApp, _: Settings, __: Monitor) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        begun = False

        async def respond(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, respond)
        except Exception as error:
            refused = error if isinstance(error, RefusedError) else RefusedError(500, FAILED)
            if not begun:
                await say(send, refused)
            if begun or refused is not error:
                raise
