"""`mue serve` under load: many clients at once against one request at a time without batches.

    python benchmarks/serve.py --clients 64 --seconds 60

Prints requests per second of both, their ratio, statuses, latencies, and the memory of the server
in each quarter after the first: a batch at work takes memory for a moment, so that single samples
differ. `--kill` ends the server in the middle with SIGKILL and starts
it again; its clients try again until they have their answers.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tyro
from PIL import Image

_BOUNDARY = "boundary-of-the-benchmark"


def body(model: str, seed: int) -> bytes:
    """A form with a picture of 128 x 128."""
    buffer, random = io.BytesIO(), np.random.default_rng(seed)
    y, x = np.mgrid[:128, :128] - 64 + random.uniform(-8, 8, (2, 1, 1))
    disc = 40 + 160 / (1 + np.exp((np.hypot(x, y) - random.uniform(5, 20)) / 2))
    pixels = disc + random.normal(0, 6, disc.shape)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(buffer, "PNG")
    start = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name="
    parts = [f'{start}"model"\r\n\r\n{model}\r\n', f'{start}"file"; filename="a.png"\r\n\r\n']
    return "".join(parts).encode() + buffer.getvalue() + f"\r\n--{_BOUNDARY}--\r\n".encode()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(model: str, port: int, batch: int) -> subprocess.Popen[bytes]:
    """Start a server and wait until it is ready."""
    command = [sys.executable, "-m", "mue", "serve", model, "--port", str(port)]
    command += ["--batch", str(batch), "--rate", "0"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603
    while server.poll() is None:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return server
        time.sleep(0.1)
    raise SystemExit("the server did not start")


@contextlib.contextmanager
def served(model: str, port: int, batch: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server that is stopped in the end."""
    server = start(model, port, batch)
    try:
        yield server
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def memory(pid: int) -> float:
    """Resident memory in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


class Load:
    """Clients that send one request after another, and what became of them."""

    def __init__(self, model: str, port: int, clients: int, seconds: float) -> None:
        self.statuses: Counter[int | str] = Counter()
        self.seconds: list[float] = []
        self._port, self._until, self._lock = port, time.monotonic() + seconds, threading.Lock()
        self._bodies = [body(model, seed) for seed in range(16)]
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(clients)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for all clients."""
        for thread in self._threads:
            thread.join()

    def _run(self, client: int) -> None:
        connection, number = None, client
        headers = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
        while time.monotonic() < self._until:
            content, number, began = self._bodies[number % 16], number + 1, time.perf_counter()
            while True:  # until this request has its answer
                try:
                    if connection is None:
                        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=90)
                    connection.request("POST", "/api/propose", content, headers)
                    found = connection.getresponse()
                    found.read()
                    status: int | str = found.status
                except (OSError, http.client.HTTPException):
                    connection, status = None, "no connection"
                with self._lock:
                    self.statuses[status] += 1
                if status == 200:
                    break
                time.sleep(0.2)
            with self._lock:
                self.seconds.append(time.perf_counter() - began)


def main(
    model: str = "lidc-exact",
    clients: int = 64,
    seconds: float = 60.0,
    batch: int = 8,
    kill: bool = False,
) -> None:
    """Measure.

    Args:
        model: The model that is served.
        clients: How many send requests at once.
        seconds: How long.
        batch: Images that are computed together, at most.
        kill: End the server in the middle, and start it again.
    """
    port = free_port()
    with served(model, port, 1):
        Load(model, port, 1, 2).join()
        alone = Load(model, port, 1, seconds / 3)
        alone.join()
    one = len(alone.seconds) / sum(alone.seconds)
    print(f"one at a time, no batches: {one:.2f}/s, median {_ms(alone.seconds)}")
    server, began, sizes = start(model, port, batch), time.monotonic(), list[float]()
    load = Load(model, port, clients, seconds)
    try:
        while time.monotonic() - began < seconds:
            time.sleep(seconds / 40)
            if kill and time.monotonic() - began > seconds / 2:
                server.kill()
                server.wait()
                server, kill = start(model, port, batch), False
            sizes.append(memory(server.pid))
        load.join()
        took = time.monotonic() - began
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    many = len(load.seconds) / took
    said = ", ".join(f"{n} x {status}" for status, n in load.statuses.items())
    print(f"{clients} clients, batches of {batch}: {many:.2f}/s, median {_ms(load.seconds)}")
    print(f"ratio {many / one:.2f}; {said}; every request has its answer")
    quarter = len(sizes) // 4
    parts = [sizes[i * quarter : (i + 1) * quarter] for i in range(1, 4)]
    for name, of in (("median", statistics.median), ("at most", max)):
        found = [of(part) for part in parts]
        said = ", ".join(f"{size:.0f}" for size in found)
        print(f"memory {name} {said} MiB in the later quarters ({found[-1] / found[0] - 1:+.1%})")


def _ms(seconds: list[float]) -> str:
    return f"{1000 * statistics.median(seconds):.0f} ms"


if __name__ == "__main__":
    tyro.cli(main)
