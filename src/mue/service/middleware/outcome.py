"""What becomes of each request: errors are sentences; a line of the log, and a count."""

import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.errors import FAILED, RefusedError, refusal
from mue.service.monitoring import Monitor, log, log_defect
from mue.service.routes import addresses
from mue.service.settings import Settings


def end_request(app: ASGIApp, _: Settings, monitor: Monitor) -> ASGIApp:
    """Say what is wrong; log and count each request under a random number, which its client gets.

    Its address in the log is that of a route, without what a client put in it.
    """
    paths = {path for path, _ in addresses()}
    folders = {path.partition("{")[0] for path in paths if "{" in path}

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        began, status, request = time.perf_counter(), 0, secrets.token_hex(8)
        asked = scope["path"]
        below = next((folder[:-1] for folder in folders if asked.startswith(folder)), "other")
        path = asked if asked in paths else below

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                header = (b"x-request-id", request.encode())
                message["headers"] = [*message.get("headers", []), header]
            await send(message)

        try:
            await app(scope, receive, respond)
        except Exception as error:
            refused = error if isinstance(error, RefusedError) else RefusedError(500, FAILED)
            if not status:  # the response has not begun
                await refusal(refused)(scope, receive, respond)
            if refused is error:
                status = refused.status
            else:
                log_defect(error, request=request, path=path)
        finally:
            seconds = time.perf_counter() - began
            monitor.request_(path, status, seconds)
            said = {"method": scope["method"][:8], "path": path, "status": status}
            log("request", request=request, **said, ms=round(1000 * seconds, 1))

    return answer
