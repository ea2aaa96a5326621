"""A line for each request."""

from asking import propose


def test_an_address_is_logged_without_what_a_client_put_in_it(client):
    client.get("/api/digits/3/4")
    client.get("/page/the-name-of-a-patient")
    text = client.get("/metrics").text
    assert 'path="/api/digits",status="200"' in text
    assert 'path="/page",status="404"' in text
    assert "patient" not in text


def test_logs_hold_no_contents(client, picture, logged, capfd):
    propose(client, picture, "the-name-of-a-patient.png")
    propose(client, b"rubbish", "the-name-of-a-patient.png")
    client.get("/healthz")  # so that the lines of both are there
    said = logged() + capfd.readouterr().err
    assert '"path": "/api/propose"' in said
    assert "patient" not in said
