"""Standard output that names itself where it cannot be written to."""

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any


class StandardOutput(io.TextIOBase):
    """Standard output, which an error of writing to it names."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Write text, or name what could not be written to."""
        with self._named():
            return self._stream.write(text)

    def flush(self) -> None:
        """Write what is still held back."""
        with self._named():
            self._stream.flush()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The number of the file, where it has one."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How text becomes bytes."""
        return self._stream.encoding

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = "standard output"
            with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())  # Python flushes when it ends
            raise
