"""What goes wrong as a response."""

from asking import propose

from mue.inference.predictor import Predictor


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
