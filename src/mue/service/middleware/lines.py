"""A line of the log and a count for each request."""

from __future__ import annotations

import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mue.service.errors import RefusedError
from mue.service.monitoring import Monitor, log, log_defect
from mue.service.routes import addresses
from mue.service.settings import Settings


class Lines:
    """Logs and counts every request under a random number, which its client gets, too."""

    def __init__(self, app: ASGIApp, _: Settings, monitor: Monitor) -> None:
        self._app, self._monitor = app, monitor
        paths = {path for path, _ in addresses()}
        self._paths = {path for path in paths if "{" not in path}
        self._folders = {path.partition("{")[0] for path in paths - self._paths}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        began, status, request = time.perf_counter(), 0, secrets.token_hex(8)
        path = self._label(scope["path"])

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                header = (b"x-request-id", request.encode())
                message["headers"] = [*message.get("headers", []), header]
            await send(message)

        try:
            await self._app(scope, receive, respond)
        except RefusedError as refused:
            status = refused.status
        except Exception as error:
            log_defect(error, request=request, path=path)
        finally:
            seconds = time.perf_counter() - began
            self._monitor.request_(path, status, seconds)
            log(
                "request",
                request=request,
                method=scope["method"][:8],
                path=path,
                status=status,
                ms=round(1000 * seconds, 1),
            )

    def _label(self, path: str) -> str:
        """An address as logs and counters have it: without what a client put in it."""
        below = next((folder[:-1] for folder in self._folders if path.startswith(folder)), "other")
        return path if path in self._paths else below
