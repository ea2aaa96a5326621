"""Counters in the text format of Prometheus, and a log of JSON lines without contents."""

import json
import logging
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32)


class Histogram:
    """Counts of values up to each bound, as Prometheus has them."""

    def __init__(self, bounds: tuple[int | float, ...]) -> None:
        self.bounds, self.counts = bounds, [0] * len(bounds)
        self.total, self.count = 0.0, 0

    def add_(self, value: int | float) -> None:
        """Count a value."""
        self.total, self.count = self.total + value, self.count + 1
        for i, bound in enumerate(self.bounds):
            self.counts[i] += value <= bound

    def lines(self, name: str) -> list[str]:
        """Cumulative counts, sum and count."""
        pairs = [*zip(map(str, self.bounds), self.counts, strict=True), ("+Inf", self.count)]
        buckets = [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in pairs]
        return [*buckets, f"{name}_sum {self.total:.6f}", f"{name}_count {self.count}"]


class Monitor:
    """What the service has done. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._seconds, self._batches = Histogram(_SECONDS), Histogram(_SIZES)
        self._gauges: dict[str, Callable[[], float]] = {}

    def gauge_(self, name: str, read: Callable[[], float]) -> None:
        """Report a value that is read when it is asked for."""
        self._gauges[name] = read

    def request_(self, path: str, status: int, seconds: float) -> None:
        """Count a request; the time only of those that were answered."""
        with self._lock:
            self._requests[path, status] += 1
            if path == "/api/propose" and status == 200:
                self._seconds.add_(seconds)

    def batch_(self, size: int) -> None:
        """Count a batch of images that were computed together."""
        with self._lock:
            self._batches.add_(size)

    def render(self) -> str:
        """All of it as text."""
        with self._lock:
            lines = [
                "# HELP mue_requests_total Requests by path and status.",
                "# TYPE mue_requests_total counter",
            ]
            lines += [
                f'mue_requests_total{{path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(self._requests.items())
            ]
            for name, text, found in (
                ("mue_propose_seconds", "Time to answer an image.", self._seconds),
                ("mue_batch_size", "Images computed together.", self._batches),
            ):
                lines += [f"# HELP {name} {text}", f"# TYPE {name} histogram", *found.lines(name)]
        for name, read in self._gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {read():g}"]
        return "\n".join(lines) + "\n"


def log(event: str, **values: Any) -> None:
    """A line of JSON on stderr. Callers pass numbers and names of ours, never what was sent."""
    line = {"time": round(time.time(), 3), "event": event, **values}
    print(json.dumps(line), file=sys.stderr, flush=True)  # noqa: T201


def log_defect(error: Exception, **values: str) -> None:
    """A line with the place of an error, without its words: they may hold what was sent."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    at = "" if where is None else f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}"
    log("defect", **values, error=type(error).__name__, at=at)


class LogLines(logging.Handler):
    """What libraries log, in the same form; only the server's words, others may hold contents."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        own = record.name.startswith("uvicorn")
        said = {"message": record.getMessage().strip()} if own else {}
        at = f"{record.pathname}:{record.lineno}"
        log(record.levelname.lower(), logger=record.name, at=at, **said)
