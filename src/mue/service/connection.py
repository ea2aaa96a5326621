"""Connections of uvicorn that have a time for the headers of a request, too."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 30.0


class TimedConnection(H11Protocol):
    """Closes a connection that stays without a whole header for SECONDS.

    The guard, and its time for a request, begin where the header ends: without this, connections
    that send a byte now and then would take all file descriptors of the process.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch."""
        super().connection_made(transport)
        self._last = self.cycle
        self._watch = self.loop.call_later(SECONDS, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        self._watch.cancel()
        super().connection_lost(exc)

    def _close_if_idle(self) -> None:
        if self.conn.their_state is h11.IDLE and self.cycle is self._last:
            self.transport.close()
            return
        self._last = self.cycle
        self._watch = self.loop.call_later(SECONDS, self._close_if_idle)
