"""Errors of the middleware and of the application as responses."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.errors import FAILED, RefusedError, say
from mue.service.monitoring import Monitor
from mue.service.settings import Settings


def say_refusals(app: ASGIApp, _: Settings, __: Monitor) -> ASGIApp:
    """Say what is wrong; raise again a defect, and what goes wrong within a response."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def respond(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await app(scope, receive, respond)
        except Exception as error:
            refused = error if isinstance(error, RefusedError) else RefusedError(500, FAILED)
            if not begun:
                await say(send, refused)
            if begun or refused is not error:
                raise

    return answer
