"""What becomes of a request: its error, its line and its count."""

from asking import counters, propose

from mue.inference.predictor import Predictor


def test_an_address_is_logged_without_what_a_client_put_in_it(client):
    client.get("/api/digits/3/4")
    client.get("/page/the-name-of-a-patient")
    lines = ('path="/api/digits",status="200"', 'path="/page",status="404"')
    assert "patient" not in counters(client, *lines)


def test_logs_hold_no_contents(client, picture, logged, capfd):
    propose(client, picture, "the-name-of-a-patient.png")
    propose(client, b"rubbish", "the-name-of-a-patient.png")
    client.get("/healthz")  # so that the lines of both are there
    said = logged() + capfd.readouterr().err
    assert '"path": "/api/propose"' in said
    assert "patient" not in said


def test_a_defect_is_a_sentence_and_a_line_without_contents(served, picture, monkeypatch, logged):
    def fails(*_, **__):
        raise RuntimeError("the name of a patient")

    monkeypatch.setattr(Predictor, "modes", fails)
    with served() as client:
        found = propose(client, picture, model="guess-exact")
        assert found.status_code == 500
        assert found.json() == {"error": "the service failed; its log names the place"}
        assert "x-request-id" in found.headers
        assert client.get("/healthz").status_code == 200
    assert '"event": "defect"' in logged()
    assert "RuntimeError" in logged()
    assert "patient" not in logged()
