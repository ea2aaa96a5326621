"""Examples and digits."""

import base64
import io

import numpy as np
import pytest
from asking import propose
from PIL import Image


def test_examples_suit_the_models_and_their_raters_sum_to_one(client):
    found = client.get("/api/examples").json()
    assert {e["task"] for e in found} == {"guess", "slices"}
    for example in found:
        assert sum(r["weight"] for r in example["raters"]) == pytest.approx(1)
        model = {"guess": "guess-exact", "slices": "lidc-exact"}[example["task"]]
        answer = propose(client, base64.b64decode(example["image"]), model=model)
        assert answer.status_code == 200


def test_digits_are_pictures(client):
    digit = client.get("/api/digits/7/3")
    assert np.asarray(Image.open(io.BytesIO(digit.content))).shape == (28, 28)
    assert client.get("/api/digits/10/0").status_code == 422
