"""Whether the client is still there."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor
from mue.service.settings import Settings


def watch_client(app: ASGIApp, _: Settings, __: Monitor) -> ASGIApp:
    """Let the application answer, unless the client goes and nobody waits for it.

    The body of the request has been read: it comes in one message.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        found, asked = list[Message](), asyncio.Queue[Message]()

        async def keep(message: Message) -> None:
            found.append(message)

        async def until_gone() -> None:
            asked.put_nowait(await receive())
            while (message := await receive())["type"] != "http.disconnect":
                pass
            asked.put_nowait(message)

        answering = asyncio.ensure_future(app(scope, asked.get, keep))
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

    return answer
