from pathlib import Path

import numpy as np
import pytest
import torch

from mue.data.prepared.item import Item
from mue.data.prepared.open import open_prepared
from mue.data.prepared.splits import Split
from mue.data.prepared.statistics import orientation, statistics
from mue.data.prepared.write import write_prepared


@pytest.fixture(scope="session")
def own(patients, tmp_path_factory) -> Path:
    """RGB images of two sizes, two classes, one to three raters."""
    items: list[Item] = []
    splits: tuple[Split, ...] = ("train", "val", "test")
    for i, patient in enumerate(name for split in splits for name in patients(split, 4)):
        random, size, raters = np.random.default_rng(i), ((20, 24), (24, 20))[i % 2], 1 + i % 3
        masks = np.zeros((raters, *size), np.uint8)
        for r in range(raters):
            masks[r, 4 : 8 + 2 * r, 6:16] = 1 + random.integers(2)
        image = np.where(masks[-1] > 0, 200, 40) + random.integers(30, size=(3, *size))
        items.append(
            Item(patient=patient, case="a", source="x", image=image.astype(np.uint8), masks=masks)
        )
    folder = tmp_path_factory.mktemp("own") / "prepared"
    labels, values = ("background", "cup", "disc"), (0, 1, 4)
    write_prepared(items, folder, {"form": "made up"}, labels=labels, values=values)
    return folder


def test_the_statistics_are_those_of_the_training_images(own):
    found = statistics(open_prepared(own))
    assert found.images == {"train": 4, "val": 4, "test": 4}
    assert (found.channels, found.labels) == (3, ("background", "cup", "disc"))
    assert found.values == (0, 1, 4)
    assert (found.shortest, found.longest, found.raters) == ((20, 20), (24, 24), (1, 3))
    assert found.median == (20, 20)  # the lower of two
    assert (found.weighted, found.oriented) == (False, False)


def test_digits_have_an_orientation_and_noise_has_none():
    from mue.data.synthetic.digits import load_digits

    g = torch.Generator().manual_seed(0)
    digits = load_digits("test").image
    some = digits[torch.randperm(len(digits), generator=g)[:200]].float()
    assert orientation(some) > 0.85
    assert orientation(torch.rand(200, 8, 8, generator=g)) < 0.65
