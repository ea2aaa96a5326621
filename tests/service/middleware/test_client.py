"""Clients that go before they are answered."""

import socket
import time

from asking import counters, propose


def test_an_image_whose_client_has_gone_is_not_computed(served, picture):
    with served(queue=8, batch=1) as client:
        form = {"model": "lidc-exact"}
        sent = client.build_request("POST", "/api/propose", files={"file": picture}, data=form)
        lines = [f"{name}: {value}" for name, value in sent.headers.items()]
        head = "\r\n".join(["POST /api/propose HTTP/1.1", *lines, "", ""]).encode()
        for _ in range(6):
            with socket.create_connection((sent.url.host, sent.url.port)) as gone:
                gone.sendall(head + sent.read())
                time.sleep(0.02)
        assert propose(client, picture).status_code == 200
        counters(client, 'mue_requests_total{path="/api/propose",status="499"}')
