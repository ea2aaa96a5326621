"""From answers to masks, and from classes to their names and values.

The classes of a model are all but the background: those of `data.labels`, or without names by
their numbers from 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Shaped, UInt8
from torch import Tensor

from mue.config.schema import Config
from mue.data.images.image import RawImage
from mue.errors import MueError
from mue.modes import Modes, binary_masks


def class_names(config: Config) -> tuple[str, ...]:
    """The names of the classes."""
    count = _count(config)
    unnamed = tuple(f"class {i + 1}" for i in range(count)) if count > 1 else ("mask",)
    return config.data.labels[1:] or unnamed


def class_values(config: Config) -> tuple[int, ...]:
    """What a pixel of each class is in the files that the model learned from."""
    return config.data.values[1:] or tuple(range(1, _count(config) + 1))


def _has_background(config: Config) -> bool:
    """Whether the first channel of an answer is the background."""
    return config.objective.likelihood == "categorical"


def _count(config: Config) -> int:
    return config.model.c_out - _has_background(config)


def label_map(y: Float[Tensor, "c h w"], config: Config) -> UInt8[Tensor, "h w"]:
    """An answer as the number of the class of each pixel, 0 for the background.

    Of classes that share a pixel, the last.
    """
    if _has_background(config):
        return y.argmax(dim=0).byte()
    number = torch.arange(1, len(y) + 1, dtype=torch.uint8, device=y.device)[:, None, None]
    return (binary_masks(y) * number).amax(dim=0)


@dataclass(frozen=True, slots=True, eq=False)
class Segmentation:
    """The hypotheses about an image or volume as masks, the most probable first.

    Attributes:
        masks: Number of the class of each pixel in each hypothesis, 0 for the background.
        expected: Mean of all answers: probability of each class other than the background.
        prob: Probability of each hypothesis.
        notes: Rank, probability and codes of each hypothesis, in words.
        rest: Probability of what is in none of them.
        classes: Names of the classes other than the background.
        values: What a pixel of each of them is in the files that the model learned from.
        image: The image that they are about.
    """

    masks: UInt8[np.ndarray, "m d h w"]
    expected: Float32[np.ndarray, "c d h w"]
    prob: tuple[float, ...]
    notes: tuple[str, ...]
    rest: float
    classes: tuple[str, ...]
    values: tuple[int, ...]
    image: RawImage

    @property
    def label_maps(self) -> Shaped[np.ndarray, "m d h w"]:
        """The masks with the values of the classes in place of their numbers."""
        values = (0, *self.values)
        return np.array(values, np.min_scalar_type(max(values)))[self.masks]

    @property
    def labels(self) -> dict[str, int]:
        """The values of the classes other than the background, by their names."""
        return dict(zip(self.classes, self.values, strict=True))

    def volume(self, slices: Shaped[np.ndarray, "*m d h w"]) -> Shaped[np.ndarray, "*m k j i"]:
        """Slices put together to the volume that they were cut from."""
        geometry = self.image.geometry
        axis = 2 if geometry is None else geometry.axis
        return np.moveaxis(slices, -3, -1 - axis)


def segmentation(modes: Modes, image: RawImage, config: Config) -> Segmentation:
    """The modes of one input, whose slices are stacked along the height, as masks."""
    if config.objective.likelihood == "normal":
        raise MueError("the answers of this model are no masks; take the formats png and json")
    modes, (d, h, w) = modes.cpu(), image.pixels.shape[1:]
    masks = torch.stack([label_map(each, config) for each in modes.y[0]])
    share = (modes.answer_prob[0] / modes.answer_prob[0].sum()).tolist()
    expected = torch.zeros(modes.answers.shape[2:])
    for p, answer in zip(share, modes.answers[0], strict=True):
        expected.add_(answer, alpha=p)
    expected = expected[1:] if _has_background(config) else expected
    prob, rest = tuple(modes.prob[0].tolist()), modes.rest[0].item()
    notes: list[str] = []
    for i, p in enumerate(prob):
        codes = [int(c) for c in modes.answer_code[0][modes.mode[0] == i] if c >= 0]
        said = f"hypothesis of rank {i + 1} of {len(prob)}, probability {p:.4f}, rest {rest:.4f}"
        notes.append(said + (f", codes {' '.join(map(str, codes))}" if codes else ""))
    return Segmentation(
        masks=masks.numpy().reshape(-1, d, h, w),
        expected=expected.numpy().reshape(-1, d, h, w),
        prob=prob,
        notes=tuple(notes),
        rest=rest,
        classes=class_names(config),
        values=class_values(config),
        image=image,
    )
