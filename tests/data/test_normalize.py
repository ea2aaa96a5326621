"""Normalization, by hand."""

import numpy as np
import pytest
import torch

from mue.config.schema import NormalizeConfig
from mue.data.normalize import choose_normalization, normalize
from mue.errors import MueError

CT = NormalizeConfig(kind="window", low=(-100.0,), high=(300.0,), mean=(100.0,), deviation=(50.0,))


def of(values: list[float], config: NormalizeConfig, dtype: torch.dtype = torch.float32):
    return normalize(torch.tensor(values).to(dtype)[None, None, None], config).flatten().tolist()


@pytest.mark.parametrize(
    ("dtype", "largest"), [(torch.uint8, 255), (torch.uint16, 65535), (torch.int16, 32767)]
)
def test_integers_are_divided_by_the_maximum_of_their_type(dtype: torch.dtype, largest: int):
    assert of([0, largest], NormalizeConfig(), dtype) == [0, 1]


def test_floats_stay_as_they_are():
    assert of([-3.5, 7.25], NormalizeConfig()) == [-3.5, 7.25]


def test_a_range_becomes_0_to_1():
    assert of([10, 30, 50], NormalizeConfig(kind="range", low=(10.0,), high=(30.0,))) == [0, 1, 2]


def test_a_window_clips_and_standardizes():
    assert of([-1000, 0, 100, 150, 4000], CT, torch.int16) == [-4, -2, 0, 1, 4]


def test_each_image_and_channel_is_standardized_by_itself():
    x = torch.tensor([[[[1.0, 3.0]], [[10.0, 30.0]]], [[[5.0, 5.0]], [[-1.0, 1.0]]]])
    found = normalize(x, NormalizeConfig(kind="zscore"))
    expected = torch.tensor([[[[-1.0, 1.0]], [[-1.0, 1.0]]], [[[0.0, 0.0]], [[-1.0, 1.0]]]])
    assert torch.equal(found, expected)


def test_each_channel_has_its_own_range():
    config = NormalizeConfig(kind="range", low=(0.0, 10.0), high=(1.0, 20.0))
    x = torch.tensor([[[[0.5]], [[15.0]]]])
    assert normalize(x, config).flatten().tolist() == [0.5, 0.5]
    with pytest.raises(MueError, match=r"low must have a number for each of the 3 channels"):
        normalize(torch.zeros(1, 3, 2, 2), config)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "range"}, "data.normalize.low must be one number for each channel"),
        ({"kind": "range", "low": (0.0,), "high": (1.0, 2.0)}, "normalize.high must be one number"),
        ({"kind": "range", "low": (1.0,), "high": (1.0,)}, "data.normalize.high must be above low"),
        ({"kind": "zscore", "mean": (1.0,)}, "data.normalize.mean must be empty for the kind"),
        ({"low": (float("nan"),)}, "data.normalize.low must be finite"),
        (
            {"kind": "window", "low": (0.0,), "high": (1.0,), "mean": (0.0,), "deviation": (0.0,)},
            "data.normalize.deviation must be positive",
        ),
    ],
)
def test_a_normalization_that_cannot_be_computed_is_refused(given, words):
    with pytest.raises(MueError, match=words):
        NormalizeConfig(**given)


def test_ct_takes_the_percentiles_of_the_annotated_pixels():
    foreground = np.arange(1001, dtype=np.int16)[None]
    found = choose_normalization(np.dtype(np.int16), ct=True, foreground=foreground)
    assert (found.kind, found.low, found.high, found.mean) == ("window", (5,), (995,), (500,))
    assert found.deviation == pytest.approx((289.0,), abs=0.1)


def test_bytes_are_divided_by_255_and_all_else_is_standardized():
    none = np.zeros((1, 0))
    kinds = {
        kind: choose_normalization(np.dtype(kind), ct=False, foreground=none).kind
        for kind in ("uint8", "uint16", "int16", "float32")
    }
    assert kinds == {"uint8": "unit", "uint16": "zscore", "int16": "zscore", "float32": "zscore"}
