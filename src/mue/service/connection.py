"""Connections of uvicorn that have a time for headers, and for what the client must read, too."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 30.0


class TimedConnection(H11Protocol):
    """Ends a connection that stays for SECONDS without a whole header, or without reading.

    The middleware and its time for a request begin where the header ends, and stop where the answer
    is known: without this, connections that send or read nothing would take all file descriptors of
    the process. A body that nobody reads any more has the same time.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch."""
        super().connection_made(transport)
        # so that sending waits until the client, or the system for it, has taken everything
        transport.set_write_buffer_limits(high=0)
        self._last = self.cycle
        self._idle = self.loop.call_later(SECONDS, self._close_if_idle)
        self._unread: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        self._idle.cancel()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Watch whether the client reads."""
        super().pause_writing()
        self._abort_if_unread(None)

    def resume_writing(self) -> None:
        """The client has read everything."""
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()

    def _close_if_idle(self) -> None:
        waits = self.conn.their_state is h11.IDLE or self.conn.our_state is h11.DONE
        if waits and self.cycle is self._last:
            self.transport.close()
            return
        self._last = self.cycle
        self._idle = self.loop.call_later(SECONDS, self._close_if_idle)

    def _abort_if_unread(self, before: int | None) -> None:
        size = self.transport.get_write_buffer_size()
        if before is not None and size >= before:
            self.transport.abort()
        else:
            self._unread = self.loop.call_later(SECONDS, self._abort_if_unread, size)
