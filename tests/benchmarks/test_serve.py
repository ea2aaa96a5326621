"""The benchmark of the service says so when a request is lost."""

import http.server
import threading

import pytest

from serve import Load, growth, ratio_said


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers with one status after another, the last of them for good."""

    protocol_version = "HTTP/1.1"
    statuses: tuple[int, ...] = ()
    asked = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        kind = type(self)
        self.send_response(kind.statuses[min(kind.asked, len(kind.statuses) - 1)])
        kind.asked += 1
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args, **_) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("statuses", "sound", "lost"),
    [((200,), True, False), ((503, 200), True, False), ((200, 500), False, True)],
)
def test_a_lost_request_is_counted(statuses, sound, lost):
    kind = type("Kind", (Answers,), {"statuses": statuses})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        load = Load("lidc-exact", server.server_port, 1, 0.5)
        load.join()
        server.shutdown()
    assert load.sound(killed=False) is sound
    assert bool(load.lost) is lost


def test_a_connection_may_only_break_when_the_server_was_killed():
    load = Load("lidc-exact", 9, 0, 0)
    load.seconds, load.statuses["no connection"], load.statuses[200] = [0.1], 1, 1
    assert load.sound(killed=True)
    assert not load.sound(killed=False)


def test_memory_grows_from_the_second_quarter_to_the_last():
    assert growth([9, 9, 500, 500, 500, 500, 500, 500]) == 0
    assert growth([900, 900, 500, 520, 500, 500, 540, 560]) == pytest.approx(550 / 510 - 1)


def test_the_ratio_is_said_with_its_bar():
    assert ratio_said(2.45) == "ratio 2.45, below the bar of 3"
    assert ratio_said(3.0) == "ratio 3.00, at least the bar of 3"
