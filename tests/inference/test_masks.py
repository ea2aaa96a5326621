import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from segmentations import CLASSES, MASKS, opened, two_answers

import mue
from mue.config.schema import Config, DataConfig, ModelConfig, ObjectiveConfig
from mue.inference.masks import class_names, class_values, label_map
from mue.inference.nifti import as_nifti
from mue.inference.npz import as_npz


def test_masks_their_mean_and_their_notes_by_hand(volume):
    found = two_answers(volume)
    assert np.argwhere(found.masks).tolist() == [[0, 1, 2, 3], [1, 3, 4, 5]]
    assert found.expected[0, 1, 2, 3] == pytest.approx(7 / 9)
    assert found.expected[0, 3, 4, 2] == pytest.approx(2 / 9 / 4)
    assert found.prob == pytest.approx((0.7, 0.2))
    assert found.rest == pytest.approx(0.1)
    said = "hypothesis of rank 2 of 2, probability 0.2000, rest 0.1000, codes 9"
    assert found.notes[1] == said
    assert found.classes == ("mask",)


def test_a_pixel_of_several_classes_has_its_most_probable(volume):
    found = two_answers(volume, CLASSES)
    assert (found.masks[0, 1, 2, 3], found.masks[1, 3, 4, 5]) == (1, 2)
    assert np.count_nonzero(found.masks) == 2
    assert found.classes == ("rim", "core")
    assert found.expected[:, 1, 2, 3] == pytest.approx([7 / 9, 0])


def test_label_maps_have_the_values_that_the_files_had(volume):
    """As the classes 0, 1, 2 and 4 of BraTS: a mask holds 4 where the model learned from 4."""
    labels = ("background", "rim", "core")
    config = replace(CLASSES, data=DataConfig(name="slices", labels=labels, values=(0, 2, 400)))
    found = two_answers(volume, config)
    assert (found.masks[0, 1, 2, 3], found.masks[1, 3, 4, 5]) == (1, 2)
    image = opened(as_nifti(found)[".nii.gz"])
    assert np.unique(np.asarray(image.dataobj)).tolist() == [0, 2, 400]
    comment = json.loads(image.header.extensions[0].get_content())
    assert comment["labels"] == {"rim": 2, "core": 400}
    with np.load(io.BytesIO(as_npz(found))) as arrays:
        assert np.unique(arrays["masks"]).tolist() == [0, 2, 400]
        assert arrays["values"].tolist() == [2, 400]


def test_answers_that_are_no_masks_are_refused(volume):
    normal = Config(method="exact", objective=ObjectiveConfig(likelihood="normal"))
    with pytest.raises(ValueError, match="no masks; take the formats png and json"):
        two_answers(volume, normal)


def test_classes_are_all_but_the_background_by_name_or_by_number():
    """Their names and values, for one class and for several, with names and without."""
    names, values = ("background", "rim", "core"), (0, 2, 400)
    named = replace(CLASSES, data=DataConfig(name="slices", labels=names, values=values))
    for config, found, pixels in (
        (MASKS, ("mask",), (1,)),
        (replace(MASKS, model=ModelConfig(c_out=2)), ("class 1", "class 2"), (1, 2)),
        (replace(CLASSES, data=DataConfig()), ("class 1", "class 2"), (1, 2)),
        (named, ("rim", "core"), (2, 400)),
        (replace(named, data=replace(named.data, values=())), ("rim", "core"), (1, 2)),
    ):
        assert (class_names(config), class_values(config)) == (found, pixels)


def test_a_pixel_is_of_its_most_probable_class_or_of_the_last_that_it_is_in():
    y = torch.tensor([[0.6, 0.2, 0.4, 0.5], [0.7, 0.3, 0.35, 0.6], [0.1, 0.9, 0.25, 0.1]])[:, None]
    assert label_map(y, CLASSES).tolist() == [[1, 2, 0, 1]]
    channels = replace(MASKS, model=ModelConfig(c_out=3))
    assert label_map(y, channels).tolist() == [[2, 3, 0, 2]]
    assert label_map(y[:1], MASKS).tolist() == [[1, 0, 0, 0]]  # one half is in no mask
    assert label_map(y, CLASSES).dtype == torch.uint8


def test_answers_are_thresholded_and_classes_are_named_in_one_place():
    """What is not random numbers or a sentence; the classes of data are named in its readers."""
    root = Path(mue.__file__).parent
    cut = re.compile(r"[<>]=? 0\.5\b(?!\.)")
    allowed = {"modes/distances.py", "data/augment.py", "data/synthetic/toy.py", "metrics/door.py"}
    for path in root.rglob("*.py"):
        name, text = path.relative_to(root).as_posix(), path.read_text()
        assert name in allowed or not cut.search(text), f"{name} thresholds: call mue.modes"
        named = re.search(r'data\.labels\[1:\]|f"class \{', text)
        assert name == "inference/masks.py" or not named, f"{name} names classes: call class_names"
