import json

import pytest

from mue.data.folder.description import read_description
from mue.errors import MueError


def test_a_description_is_that_of_nnunet(tmp_path):
    content = {
        "channel_names": {"1": "T2", "0": "T1"},
        "labels": {"tumour": 2, "background": 0, "oedema": 1},
        "file_ending": ".nii.gz",
        "numTraining": 3,
    }
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    found = read_description(tmp_path)
    assert list(found.labels.items()) == [("background", 0), ("oedema", 1), ("tumour", 2)]
    assert (found.channels, found.ending, found.weights) == (("T1", "T2"), ".nii.gz", {})
    (tmp_path / "dataset.json").write_text('{"labels": {"0": "background", "1": "organ"}}')
    assert read_description(tmp_path).labels == {"background": 0, "organ": 1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "dataset.json must hold channel_names"),
        ("[]", "it is not a dictionary"),
        ('{"labels": {"a": 1, "b": 2}}', "different values, 0 for the background"),
        ('{"labels": {"a": 0, "b": 0}}', "different values"),
        ('{"labels": {"a": 0, "b": 1.5}}', "invalid literal for int.* '1.5'"),
        ('{"labels": {"a": 0}}', "the background and 1 to 254 classes"),
        ('{"labels": {"a": 0, "b": [1, 2]}}', "regions of several are not read"),
        ('{"labels": {"a": 0, "b": 1, "ignore": 2}}', "give these pixels a class"),
        ('{"rater_weights": {"r0": -1}}', "rater_weights must be positive"),
        ('{"rater_weights": 3}', "dataset.json must hold"),
        ("[" * 100_000, "dataset.json must hold"),
        ('{"labels": {"a": 0, "b": Infinity}}', "dataset.json must hold"),
        ('{"channel_names": {"0": "x", "1e30": "y"}}', "dataset.json must hold"),
        (f'{{"channel_names": "xy", "labels": {{"a": 0, "b": {10**30}}}}}', "dataset.json must"),
    ],
)
def test_a_bad_description_is_one_sentence(tmp_path, content, words):
    (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(MueError, match=words) as caught:
        read_description(tmp_path)
    assert "\n" not in str(caught.value)
