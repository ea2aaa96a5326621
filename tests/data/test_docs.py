"""The code of docs/data.md runs."""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mue.commands.train import train
from mue.config.presets import preset
from mue.data.prepared.open import open_prepared
from mue.data.source import Source
from mue.runs.log import read_validations

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


@pytest.fixture
def page(lesions, tmp_path, monkeypatch) -> dict[str, Any]:
    """What the code blocks of the page define, run where `lidc` is prepared data."""
    shutil.copytree(lesions, tmp_path / "lidc")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, "docs/data.md", "exec"), names)
    return names


def test_the_prepared_form_is_read_with_numpy_alone(page, lesions):
    prepared = open_prepared(lesions)
    assert [row["patient"] for row in page["rows"]] == [row.patient for row in prepared.rows]
    assert np.array_equal(page["image"], prepared.image(0))
    assert np.array_equal(page["masks"], prepared.masks_of(0))


def test_a_data_set_of_ones_own_is_trained_on(page, tmp_path):
    random = np.random.default_rng(0)
    images = random.random((20, 2, 8, 8), np.float32)
    masks = (random.random((20, 3, 1, 8, 8)) < 0.5).astype(np.float32)
    source = page["Arrays"](images, masks)
    assert isinstance(source, Source)
    pair = source.pair(torch.arange(200))
    assert {i for i in range(20) for x in pair.x if np.array_equal(images[i], x)} == set(range(20))
    assert all(any(np.array_equal(y[0], m) for m in masks.reshape(-1, 1, 8, 8)) for y in pair.y)
    config = preset("toy")
    model = dataclasses.replace(config.model, c_in=2)
    schedule = dataclasses.replace(config.train, steps=2, batch=4)
    config = dataclasses.replace(config, model=model, train=schedule)
    validation = page["Arrays"](images[::-1], masks[::-1])
    run = train(config, tmp_path / "run", source=source, validation=validation).folder
    assert (run / "weights.safetensors").exists()
    assert [v.metric for v in read_validations(run)] == ["ged"]
    plain = dataclasses.replace(config, train=dataclasses.replace(schedule, validate_every=0))
    assert (train(plain, tmp_path / "plain", source=source).folder / "weights.safetensors").exists()
