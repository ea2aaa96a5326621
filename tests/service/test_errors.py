"""What is wrong is said in a sentence."""

import pytest
from asking import propose


def test_the_sentence_has_the_thing_the_contract_and_the_value(client, picture):
    def said(**form):
        return propose(client, picture, **form).json()["error"]

    assert said(k=0) == "`k` must be greater than or equal to 1, got 0"
    assert said(slice="x") == "`slice` must be a valid integer, got x"
    assert said(masks="gif") == "`masks` must be 'png', 'rle' or 'none', got gif"
    assert len(said(k="9" * 5000)) < 200
    missing = client.post("/api/propose", data={"model": "lidc-exact"}).json()["error"]
    assert missing.startswith("`file` is missing")
    parts = {"model": (None, "lidc-exact"), "file": (None, "hello")}
    text = client.post("/api/propose", files=parts).json()["error"]
    assert text == "`file` must be a file, got a text"
    assert "leave out `by` and `cut`" in said(by="code", coverage=0.9)


@pytest.mark.parametrize("wrong", [{"k": 0}, {"by": "x"}, {"coverage": 2}, {"cut": -1}, {"k": "a"}])
def test_a_wrong_value_is_named(client, picture, wrong):
    found = propose(client, picture, **wrong)
    assert found.status_code == 422
    assert f"`{next(iter(wrong))}`" in found.json()["error"]


def test_an_unknown_model_and_page_are_not_found(client, picture):
    assert propose(client, picture, model="none").status_code == 404
    assert client.get("/page/..%2fapp.py").status_code == 404
    assert "there is no such address" in client.get("/nowhere").json()["error"]
    assert "another method" in client.get("/api/propose").json()["error"]
