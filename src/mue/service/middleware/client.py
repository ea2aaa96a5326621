"""Whether the client is still there."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.settings import Settings


class Client:
    """Lets the application answer, unless the client goes and nobody waits for it.

    The body of the request has been read: it comes in one message.
    """

    def __init__(self, app: ASGIApp, _: Settings, __: Monitor) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        found, asked = list[Message](), asyncio.Queue[Message]()

        async def keep(message: Message) -> None:
            found.append(message)

        async def until_gone() -> None:
            asked.put_nowait(await receive())
            while (message := await receive())["type"] != "http.disconnect":
                pass
            asked.put_nowait(message)

        answering = asyncio.ensure_future(self._app(scope, asked.get, keep))
        gone = asyncio.ensure_future(until_gone())
        try:
            await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise RefusedError(499, "the client closed the connection")
            await answering
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
