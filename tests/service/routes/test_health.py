"""Health and counters."""

from asking import counters, propose


def test_health_and_metrics(client, picture):
    assert client.get("/readyz").json() == {"status": "ready"}
    propose(client, picture)
    counters(client, 'mue_requests_total{path="/api/propose",status="200"}', "mue_batch_size_count")
