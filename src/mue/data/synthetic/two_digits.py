"""An example of images that raters annotate differently, by a rule that is known.

Two digits side by side, each red or blue. Red ink is the class 1, blue ink the class 2. Rater 0
annotates both digits, rater 1 the left one alone, rater 2 the red ones alone. An answer comes from
them with the probabilities 0.5, 0.3 and 0.2, so what is probable depends on the colours:

    left   right   both    left    right   none
    red    red     0.7     0.3
    red    blue    0.5     0.5
    blue   red     0.5     0.3     0.2
    blue   blue    0.5     0.3             0.2
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8

from mue.data.random import uniform
from mue.data.synthetic.digits import MnistSplit, load_digits

LABELS = {"background": 0, "red": 1, "blue": 2}
RATER_WEIGHTS = (0.5, 0.3, 0.2)
_SIDE, _INK = 32, 96  # a digit's half of the image; the grey value from which on it is ink
_COLOURS = np.array([[230, 60, 50], [60, 90, 230]], dtype=np.float32)
_PAPER = 40.0


@dataclass(frozen=True, slots=True)
class TwoDigits:
    """A picture with the masks of the three raters."""

    image: UInt8[np.ndarray, "3 32 64"]
    masks: UInt8[np.ndarray, "3 32 64"]

    def modes(self) -> list[tuple[UInt8[np.ndarray, "32 64"], float]]:
        """The answers that differ, each with its true probability."""
        found: dict[bytes, tuple[np.ndarray, float]] = {}
        for mask, weight in zip(self.masks, RATER_WEIGHTS, strict=True):
            _, before = found.get(mask.tobytes(), (mask, 0.0))
            found[mask.tobytes()] = mask, before + weight
        return list(found.values())


def two_digits(split: MnistSplit, seed: int, index: int) -> TwoDigits:
    """Picture `index`: it depends on the split, the seed and the index alone."""
    digits = load_digits(split)
    u = uniform(seed, torch.tensor([index]), 8 + _SIDE * 2 * _SIDE)[0].double().numpy()
    image = np.full((3, _SIDE, 2 * _SIDE), _PAPER)
    classes = np.zeros((2, _SIDE, 2 * _SIDE), dtype=np.uint8)  # of each digit alone
    for side, (which, blue, down, right) in enumerate(u[:8].reshape(2, 4)):
        ink = digits.image[int(which * len(digits.image))].numpy()
        top, left = int(down * 5), side * _SIDE + int(right * 5)
        part = np.s_[:, top : top + 28, left : left + 28]
        colour, share = _COLOURS[int(blue * 2)][:, None, None], ink / 255
        image[part] += share * (colour - _PAPER)
        classes[side][part[1:]] = (ink >= _INK) * (1 + int(blue * 2))
    image += 30 * (u[8:].reshape(_SIDE, 2 * _SIDE) - 0.5)
    both = classes.max(axis=0)
    masks = np.stack([both, classes[0], both * (both == LABELS["red"])])
    return TwoDigits(image.clip(0, 255).astype(np.uint8), masks)
