"""`mue serve` under load: many clients at once against one request at a time without batches.

    python benchmarks/serve.py --clients 64 --seconds 60

Prints requests per second of both, their ratio, statuses, latencies, and the memory of the server
in each quarter after the first: a batch at work takes memory for a moment, so that single samples
differ. `--kill` ends the server in the middle with SIGKILL and starts
it again; its clients try again until they have their answers. It exits with 1 if a request is lost,
or has another status than 200 and 503, or if the memory grows by more than 5 % over the later
quarters; it says whether many clients have three times as many answers as one, which takes more
than two cores.

    python benchmarks/serve.py --first-page

measures the seconds from the start of the command to the first page, and from an upload to its
answers once it is warm.

    python benchmarks/serve.py --parts

measures instead what a request is made of and what a batch gains, without a server, in processor
time, which other programs hardly change. It writes the table of docs/deploy.md.
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
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tyro
from PIL import Image

import mue
from mue.inference.inputs import network_input
from mue.inference.prediction import Prediction
from mue.runtime.environment import keep_freed_memory
from mue.service.answers import as_json, rank
from mue.service.settings import Settings
from mue.service.uploads import read_upload
from pages import ROOT, insert, markdown

_BATCHES, _ROUNDS = (1, 2, 4, 8, 16), 8
_BAR = 3.0  # times as many answers of many clients as of one
_MAX_GROWTH = 0.05  # of the memory, from the second quarter to the last one
_PATIENCE = 120  # seconds after which a request without an answer is lost
_BOUNDARY = "boundary-of-the-benchmark"


def picture(seed: int) -> bytes:
    """A PNG of 128 x 128."""
    buffer, random = io.BytesIO(), np.random.default_rng(seed)
    y, x = np.mgrid[:128, :128] - 64 + random.uniform(-8, 8, (2, 1, 1))
    disc = 40 + 160 / (1 + np.exp((np.hypot(x, y) - random.uniform(5, 20)) / 2))
    pixels = disc + random.normal(0, 6, disc.shape)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def body(model: str, seed: int) -> bytes:
    """A form with a picture."""
    start = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name="
    parts = [f'{start}"model"\r\n\r\n{model}\r\n', f'{start}"file"; filename="a.png"\r\n\r\n']
    return "".join(parts).encode() + picture(seed) + f"\r\n--{_BOUNDARY}--\r\n".encode()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(model: str, port: int, batch: int, path: str = "/readyz") -> subprocess.Popen[bytes]:
    """Start a server and wait until it is ready, or has another page."""
    command = [sys.executable, "-m", "mue", "serve", model, "--port", str(port)]
    command += ["--batch", str(batch), "--rate", "0"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603
    while server.poll() is None:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return server
        time.sleep(0.05)
    raise SystemExit("the server did not start")


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/readyz")
    return connection.getresponse().status == 200


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
        self.lost = 0
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
            while True:  # until this request has its answer, or is lost
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
                took = time.perf_counter() - began
                if status not in (503, "no connection") or took > _PATIENCE:
                    break
                time.sleep(0.2)
            with self._lock:
                if status == 200:
                    self.seconds.append(took)
                else:
                    self.lost += 1
        if connection is not None:
            connection.close()

    def sound(self, killed: bool) -> bool:
        """Whether no request is lost, and none failed but for a full queue, or a killed server."""
        allowed = {200, 503, "no connection"} if killed else {200, 503}
        return not self.lost and bool(self.seconds) and set(self.statuses) <= allowed


def main(
    model: str = "lidc-exact",
    clients: int = 64,
    seconds: float = 60.0,
    batch: int = 8,
    kill: bool = False,
    parts: bool = False,
    first_page: bool = False,
) -> None:
    """Measure.

    Args:
        model: The model that is served.
        clients: How many send requests at once.
        seconds: How long.
        batch: Images that are computed together, at most.
        kill: End the server in the middle, and start it again.
        parts: Measure the parts of a request and sizes of batches instead.
        first_page: Measure the time to the first page, and to the answers of an upload instead.
    """
    if first_page:
        print(time_to_first_page(model))
        return
    if parts:
        insert(ROOT / "docs" / "deploy.md", table_of_parts(model), "serve")
        return
    port = free_port()
    with served(model, port, 1):
        Load(model, port, 1, 2).join()
        alone = Load(model, port, 1, seconds / 3)
        alone.join()
    one = len(alone.seconds) / sum(alone.seconds)
    print(f"one at a time, no batches: {one:.2f}/s, median {_ms(alone.seconds)}")
    server, began, sizes = start(model, port, batch), time.monotonic(), list[float]()
    killed = kill
    load = Load(model, port, clients, seconds)
    try:
        while time.monotonic() - began < seconds:
            time.sleep(seconds / 40)
            if kill and time.monotonic() - began > seconds / 2:
                server.kill()
                server.wait()
                server, kill = start(model, port, batch), False
                sizes.clear()  # the memory is that of the new one
            sizes.append(memory(server.pid))
        load.join()
        took = time.monotonic() - began
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    many = len(load.seconds) / took
    said = ", ".join(f"{n} x {status}" for status, n in load.statuses.items())
    print(f"{clients} clients, batches of {batch}: {many:.2f}/s, median {_ms(load.seconds)}")
    print(f"{ratio_said(many / one)}; {said}; {load.lost} lost")
    for name, of in (("median", statistics.median), ("at most", max)):
        found = [of(each) for each in later_quarters(sizes)]
        said = ", ".join(f"{size:.0f}" for size in found)
        print(f"memory {name} {said} MiB in the later quarters ({found[-1] / found[0] - 1:+.1%})")
    grows = growth(sizes) > _MAX_GROWTH
    if grows:
        print(f"the memory grows by {growth(sizes):.1%}, more than {_MAX_GROWTH:.0%}")
    raise SystemExit(0 if alone.sound(False) and load.sound(killed) and not grows else 1)


def ratio_said(ratio: float) -> str:
    """The ratio, and whether it is what is wanted."""
    return f"ratio {ratio:.2f}, {'at least' if ratio >= _BAR else 'below'} the bar of {_BAR:g}"


def later_quarters(sizes: list[float]) -> list[list[float]]:
    """Samples of all quarters but the first, in which the server warms up."""
    quarter = len(sizes) // 4
    return [sizes[i * quarter : (i + 1) * quarter] for i in range(1, 4)]


def growth(sizes: list[float]) -> float:
    """By what share the median grows from the second quarter to the last one."""
    first, *_, last = (statistics.median(each) for each in later_quarters(sizes))
    return last / first - 1


def time_to_first_page(model: str) -> str:
    """Seconds from the start to the first page, and from an upload to its answers, warm."""
    port, began = free_port(), time.monotonic()
    server = start(model, port, 8, "/")
    page = time.monotonic() - began
    try:
        while not _is_ready(port):
            time.sleep(0.05)
        ready = time.monotonic() - began
        load = Load(model, port, 1, 10)
        load.join()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    warm = load.seconds[3:]
    if not warm or not load.sound(killed=False):
        raise SystemExit(f"the uploads were not answered: {dict(load.statuses)}")
    return (
        f"{page:.2f} s from the start to the first page, {ready:.2f} s until it is ready; from an "
        f"upload of 128 x 128 to its answers {_ms(warm)}, at most {1000 * max(warm):.0f} ms "
        f"({len(warm)} uploads)"
    )


def table_of_parts(model: str) -> str:
    """Milliseconds of a core for an image: the parts of a request, and a batch on 1 and 2 threads.

    The least of several rounds, in which all of them take turns.
    """
    import torch  # after mue, which says how its threads wait

    keep_freed_memory()  # as the server does
    predictor = mue.load(model, device="cpu")
    config = predictor.config
    files = [picture(seed) for seed in range(_BATCHES[-1])]
    uploads = [read_upload([("a.png", file)], None, 1, Settings()) for file in files]
    x = torch.cat([network_input(each.raw.pixels, config.data.normalize) for each in uploads])
    h, modes = (
        predictor.propose(x[:1], predictor.max_answers, normalized=True),
        predictor.modes(x[:1], normalized=True),
    )
    top = rank(modes, predictor, by="mode", k=8, cut=None, coverage=None)
    raw = uploads[0].raw
    shown = Prediction(Path("a.png"), x[0], top, raw, "mode", model, config)
    steps: dict[str, Callable[[], object]] = {
        "decode the PNG": lambda: read_upload([("a.png", files[0])], None, 1, Settings()),
        "network": lambda: predictor.propose(x[:1], predictor.max_answers, normalized=True),
        "group the answers": lambda: predictor.group(h),
        "masks and JSON": lambda: as_json(shown, uploads[0], form="png", details=False),
    }
    calls = {(name, 1, 1): call for name, call in steps.items()}
    for size in _BATCHES:
        for threads in (1, 2):
            calls["batch", size, threads] = lambda size=size: predictor.modes(
                x[:size], normalized=True
            )
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(_ROUNDS):
        for (name, size, threads), call in calls.items():
            torch.set_num_threads(threads)
            began = time.process_time()
            call()
            took = 1000 * (time.process_time() - began) / size
            least[name, size, threads] = min(least[name, size, threads], took)
    said = ", ".join(f"{name} {least[name, 1, 1]:.1f} ms" for name in steps)
    rows = [
        [str(size), *(f"{least['batch', size, threads]:.0f} ms" for threads in (1, 2))]
        for size in _BATCHES
    ]
    gain = least["batch", 1, 1] / min(least["batch", size, 1] for size in _BATCHES)
    table = markdown(["images in a batch", "one thread", "two threads, together"], rows)
    return (
        f"Processor time for an image of 128 x 128 with `{model}`: {said}.\n\n{table}\n\n"
        f"A batch gains at most a factor of {gain:.2f}, so two cores can give at most "
        f"{2 * gain:.1f} times what one of them gives to one request at a time.\n\n"
        f"`python benchmarks/serve.py --parts`, {processor()}, torch {torch.__version__}"
    )


def processor() -> str:
    """What the processor is called."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))


def _ms(seconds: list[float]) -> str:
    return f"{1000 * statistics.median(seconds):.0f} ms"


if __name__ == "__main__":
    tyro.cli(main)
