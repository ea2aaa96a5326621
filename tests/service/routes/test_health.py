"""Health and counters."""

from asking import propose


def test_health_and_metrics(client, picture):
    assert client.get("/readyz").json() == {"status": "ready"}
    propose(client, picture)
    text = client.get("/metrics").text
    assert 'mue_requests_total{path="/api/propose",status="200"}' in text
    assert "mue_batch_size_count" in text
