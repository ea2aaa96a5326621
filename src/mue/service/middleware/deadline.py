"""The time that a request may take."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.settings import Settings


def limit_time(app: ASGIApp, settings: Settings, _: Monitor) -> ASGIApp:
    """End a request whose response has not begun in time.

    A client that reads the response slowly has the time of its connection.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(settings.seconds) as limit:

                async def respond(message: Message) -> None:
                    limit.reschedule(None)
                    await send(message)

                await app(scope, receive, respond)
        except TimeoutError:
            raise RefusedError(
                504, f"the request took longer than {settings.seconds:g} s", 5
            ) from None

    return answer
