"""The answers that are asked for."""

import base64
import io

import numpy as np
import pytest
from asking import decoded, propose
from PIL import Image

import mue


def test_the_answers_are_those_of_the_predictor(client, predictors, picture):
    found = propose(client, picture).json()
    modes = predictors["lidc-exact"].modes(np.asarray(Image.open(io.BytesIO(picture)))).top(8)
    assert [m["prob"] for m in found["modes"]] == pytest.approx(modes.prob[0].tolist(), abs=1e-5)
    assert sum(m["prob"] for m in found["modes"]) + found["rest"] == pytest.approx(1, abs=1e-5)
    for mode, y in zip(found["modes"], modes.y[0], strict=True):
        assert np.abs(decoded(mode["mask"]) / 255.0 - y[0].numpy()).max() < 0.003
        assert sum(m["prob"] for m in mode["members"]) == pytest.approx(mode["prob"], abs=1e-5)


@pytest.mark.parametrize("how", [{}, {"by": "code", "k": 3}, {"coverage": 0.9}])
def test_the_modes_have_the_words_and_numbers_of_mue_predict(client, picture, tmp_path, how):
    (tmp_path / "a.png").write_bytes(picture)
    (predicted,) = mue.predict("lidc-exact", tmp_path / "a.png", **how).report
    found = propose(client, picture, masks="none", **how).json()
    for mode in found["modes"]:
        assert mode.pop("mask") == {}
    wanted = {key: predicted[key] for key in found if key != "seconds"}
    assert found.pop("seconds") > 0
    assert close(found) == close(wanted)
    assert set(predicted) - set(found) == {"image", "slices"}


def close(value):
    """Numbers rounded, in a structure of lists and dictionaries."""
    if isinstance(value, dict):
        return {key: close(each) for key, each in value.items()}
    if isinstance(value, list):
        return [close(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def test_runs_and_png_are_the_same_mask(client, picture):
    png = propose(client, picture).json()["modes"]
    runs = propose(client, picture, masks="rle").json()["modes"]
    for a, b in zip(png, runs, strict=True):
        counts, size = b["mask"]["rle"]["mask"]["counts"], b["mask"]["rle"]["mask"]["size"]
        flat = np.repeat(np.arange(len(counts)) % 2, counts)
        assert np.array_equal(flat.reshape(size, order="F"), decoded(a["mask"]) > 127)


def test_k_cut_code_and_coverage_do_what_they_say(client, picture):
    assert len(propose(client, picture, k=1).json()["modes"]) == 1
    finer = propose(client, picture, cut=0.0, k=99).json()["modes"]
    assert len(finer) >= len(propose(client, picture, cut=0.9, k=99).json()["modes"])
    by_code = propose(client, picture, by="code", k=99).json()
    assert all(len(m["members"]) == 1 for m in by_code["modes"])
    assert propose(client, picture, coverage=0.85).json()["coverage"] == 0.9
    wrong = propose(client, picture, coverage=0.9, cut=0.1)
    assert wrong.status_code == 422
    assert "calibrated cut" in wrong.json()["error"]


def test_details_hold_every_answer_the_tree_and_the_image(client, picture):
    found = propose(client, picture, details=True).json()
    k, image = len(found["answers"]), found["image"]
    assert len(found["tree"]["parent"]) == len(found["tree"]["distance"][0]) == k
    assert found["tree"]["height"].count(None) == 1  # the last group is joined to none
    values = np.frombuffer(base64.b64decode(image["values"]), image["dtype"])
    assert np.array_equal(values.reshape(64, 64), np.asarray(Image.open(io.BytesIO(picture))))
