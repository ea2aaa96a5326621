"""The answers to an image file, before they are written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from mue.config.schema import Config
from mue.data.images.image import RawImage
from mue.inference.json import modes_json
from mue.inference.masks import Segmentation, class_values, segmentation
from mue.modes import By, Modes


@dataclass(frozen=True, eq=False)
class Prediction:
    """An image file, its pixels as the model takes them, and the ranked modes: a batch of one.

    The slices of a volume are stacked along the height (c, d·h, w), in `x` and in the modes.
    """

    image: Path
    x: Tensor
    modes: Modes
    raw: RawImage
    by: By
    model: str
    config: Config  # of the model

    @cached_property
    def segmentation(self) -> Segmentation:
        """The modes as masks in the space of the file."""
        return segmentation(self.modes, self.raw, self.config)

    def summary(self) -> dict[str, Any]:
        """Probabilities, codes and members of each mode."""
        values = zip(self.config.data.labels, (0, *class_values(self.config)), strict=False)
        return {
            "image": str(self.image),
            "model": self.model,
            "slices": self.raw.pixels.shape[1],
            **({"labels": dict(values)} if self.config.data.labels else {}),
            **modes_json(self.modes, by=self.by),
        }
