"""Work beside other work on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def beside(stream: torch.cuda.Stream) -> Iterator[None]:
    """Let what follows run on a stream of its own, from what has been begun so far on."""
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        yield
