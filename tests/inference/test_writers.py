import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import mue
from mue.inference import writers
from mue.inference.prediction import Prediction
from mue.inference.writers import FORMATS, OutputFormat


@pytest.fixture
def image(tmp_path) -> Path:
    np.save(tmp_path / "one.npy", np.random.default_rng(0).random((8, 8), np.float32))
    return tmp_path / "one.npy"


def test_every_format_ends_with_the_file_that_says_it_is_whole(trained, image):
    """By which a second call sees that an image is answered."""
    (found,) = mue.predict(trained, image, device="cpu").predictions
    for name in ("png", "json", "nifti", "npz"):
        assert list(FORMATS[name].encode(found))[-1] == FORMATS[name].last
    lasts = [form.last for form in FORMATS.values()]
    assert len(set(lasts)) == len(lasts)


def test_the_command_line_offers_every_format():
    assert get_args(writers.Format) == tuple(FORMATS)


@pytest.mark.usefixtures("unchecked")
def test_a_format_is_a_line_of_the_table(trained, image, tmp_path, monkeypatch):
    """As CONTRIBUTING says: what it encodes is written, skipped when it is there, and listed."""

    def ranks(p: Prediction) -> dict[str, bytes]:
        return {".txt": " ".join(f"{value:.3f}" for value in p.modes.prob[0]).encode()}

    monkeypatch.setitem(FORMATS, "ranks", OutputFormat(".txt", ranks))
    out = tmp_path / "out"
    for done in (0, 1):
        found = mue.predict(trained, image, out=out, format=["ranks"], device="cpu")
        assert (found.done, [p.name for p in found.files]) == (done, ["one.txt"][done:])
    modes = mue.predict(trained, image, device="cpu").predictions[0].modes
    assert (out / "one.txt").read_text().split()[0] == f"{modes.prob[0, 0]:.3f}"


def test_json_names_the_image_the_model_and_the_values_of_classes(trained, image):
    (found,) = mue.predict(trained, image, device="cpu").predictions
    content = json.loads(FORMATS["json"].encode(found)[".json"])
    assert content == found.summary()
    assert (content["image"], content["model"], content["slices"]) == (str(image), "run", 1)
    assert "labels" not in content
    assert len(content["modes"]) == found.modes.prob.shape[1]
    data = replace(found.config.data, labels=("background", "lesion"), values=(0, 255))
    named = replace(found, config=replace(found.config, data=data))
    assert named.summary()["labels"] == {"background": 0, "lesion": 255}
