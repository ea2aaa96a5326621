"""Segmentations whose masks a test knows."""

import gzip
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from nibabel.nifti1 import Nifti1Image

from mue.config.schema import Config, DataConfig, ModelConfig, ObjectiveConfig
from mue.data.images.reader import read_image_file
from mue.inference.masks import Segmentation, segmentation
from mue.modes import linkage, modes_of

MASKS = Config(data=DataConfig(name="slices"))
CLASSES = Config(
    data=DataConfig(name="slices", labels=("background", "rim", "core")),
    model=ModelConfig(c_out=3),
    objective=ObjectiveConfig(likelihood="categorical"),
)


def two_answers(path: Path, config: Config = MASKS, axis: Any = 2) -> Segmentation:
    """A pixel of slice 1 at row 2 and column 3 (probability 0.7), another of slice 3 (0.2)."""
    raw = read_image_file(path, axis=axis)
    y = torch.zeros(1, 2, 1, *raw.pixels.shape[1:])
    y[0, 0, 0, 1, 2, 3] = y[0, 1, 0, 3, 4, 5] = 1
    y[0, 1, 0, 3, 4, 2] = 0.25  # less than one half, so in no mask
    if config.model.c_out == 3:  # the first is all rim, the second all core
        rim, core = y.clone(), y.clone()
        rim[:, 1], core[:, 0] = 0, 0
        y = torch.cat([1 - rim - core, rim, core], dim=2)
    return segmentation_of(y, raw, config)


def bright_voxels(path: Path, axis: Any) -> Segmentation:
    """The voxels above 0, and those below."""
    raw = read_image_file(path, axis=axis)
    x = torch.from_numpy(np.ascontiguousarray(raw.pixels))
    return segmentation_of(torch.stack([x > 0, x < 0])[None].float(), raw, MASKS)


def segmentation_of(y: torch.Tensor, raw: Any, config: Config) -> Segmentation:
    prob, code = torch.tensor([[0.7, 0.2]]), torch.tensor([[4, 9]])
    tree = linkage(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]), prob)
    return segmentation(modes_of(y.flatten(3, 4), prob, code, tree, 0.5), raw, config)


def opened(data: bytes) -> Nifti1Image:
    return cast("Nifti1Image", Nifti1Image.from_bytes(gzip.decompress(data)))
