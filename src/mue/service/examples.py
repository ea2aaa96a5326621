"""Images to begin with: digits of the guessing game, and phantoms of lesions in a lung.

The phantoms are computed, so they show nobody. Their four masks are those of raters who differ by
a rule: where an edge is, and whether faint tissue belongs to the lesion.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, UInt8
from scipy.ndimage import gaussian_filter

from mue.data.synthetic.digits import load_digits
from mue.data.synthetic.guess import GuessingGame

_SIDE = 128
DIGITS = 12
"""Images of each digit that a visitor can choose from."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """An image with the answers that are known to it."""

    id: str
    task: str  # the data of the models that it suits: guess or slices
    name: str
    note: str
    image: UInt8[np.ndarray, "h w"]
    masks: UInt8[np.ndarray, "r h w"]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Phantom:
    """A lesion: radii of its core and of the faint halo around it, and how bright they are."""

    seed: int
    name: str
    note: str
    core: float
    halo: float
    bright: float
    faint: float
    rough: float = 0.0  # of the edge, in pixels
    wall: bool = False  # at the pleura
    vessels: int = 5


_PHANTOMS = (
    _Phantom(103, "Spiculated nodule", "Where does it end?", 13.0, 17.0, 0.6, 0.3, rough=6.0),
    _Phantom(101, "Part-solid nodule", "Is the halo part of it?", 10.0, 22.0, 0.6, 0.22, rough=2.0),
    _Phantom(100, "Solid nodule", "A sharp edge: raters agree.", 15.0, 17.0, 0.62, 0.25),
    _Phantom(102, "Ground glass", "Some see nothing at all.", 0.0, 17.0, 0.0, 0.2, rough=2.0),
    _Phantom(104, "At the pleura", "Where does the wall begin?", 14.0, 16.0, 0.55, 0.2, wall=True),
    _Phantom(105, "Small nodule", "Or a vessel, seen end-on?", 5.0, 6.5, 0.5, 0.2, vessels=9),
)


@cache
def examples() -> tuple[Example, ...]:
    """Every example."""
    return (*(_phantom(i) for i in range(len(_PHANTOMS))), *_rounds())


def _rounds() -> list[Example]:
    """A round of the guessing game for each category, its answers with their probabilities."""
    game, found = GuessingGame("test", seed=7), dict[str, Example]()
    case = game.case(torch.arange(64))
    for x, ys, q, group in zip(case.x, case.ys, case.q, case.group, strict=True):
        if group not in found:
            said = ", ".join(f"{100 * p:.0f} %" for p in q.tolist())
            found[group] = Example(
                f"game-{group.lower()}",
                "guess",
                f"Category {group}",
                f"One digit is kept: {said}.",
                _bytes(x[0].numpy()),
                _bytes(ys[:, 0].numpy()),
                tuple(q.tolist()),
            )
    return [found[name] for name in sorted(found)]


def digit(label: int, index: int) -> UInt8[np.ndarray, "28 28"]:
    """An image of a digit that no model was trained on."""
    digits = load_digits("test")
    step = int(digits.count[label]) // DIGITS
    return digits.image[int(digits.first[label]) + index * step].numpy()


def _phantom(number: int) -> Example:
    """A crop of CT: lung, vessels, sometimes the wall of the chest, and a lesion in the middle."""
    kind = _PHANTOMS[number]
    random = np.random.default_rng(kind.seed)
    y, x = np.mgrid[:_SIDE, :_SIDE] - _SIDE / 2 + random.uniform(-4, 4, (2, 1, 1))
    angle = np.arctan2(y, x)
    edge = sum(
        random.normal() * np.cos(f * angle + random.uniform(0, 2 * np.pi)) / f**0.5
        for f in range(2, 14)
    )
    radius = np.hypot(x, y) + 0.6 * random.normal() + kind.rough * 0.35 * edge
    texture = gaussian_filter(random.normal(size=(_SIDE, _SIDE)), 1.1)
    image = 0.16 + 0.035 * gaussian_filter(random.normal(size=(_SIDE, _SIDE)), 7) / 0.04
    for _ in range(kind.vessels):
        image += _vessel(random, x, y)
    if kind.wall:
        image += 0.55 * _soft(np.hypot(x + 70, y * 0.5) - 62, 1.5)
    core = _soft(radius - kind.core, 1.2) if kind.core else np.zeros_like(image)
    halo = _soft(radius - kind.halo, 2.5)
    image = np.maximum(image, 0.16 + kind.bright * core + kind.faint * halo * (1 - core))
    image = gaussian_filter(image, 0.7) + 0.05 * texture
    levels = (-99, kind.core or kind.halo * 0.7, (kind.core + kind.halo) / 2, kind.halo)
    faint = kind.bright == 0
    masks = np.stack([(radius < r) for r in (levels if faint else (levels[1], *levels[1:]))])
    return Example(
        f"phantom-{number + 1}",
        "slices",
        kind.name,
        kind.note,
        _bytes(image),
        masks.astype(np.uint8) * 255,
        (0.25,) * 4,
    )


def _soft(distance: np.ndarray, width: float) -> Float[np.ndarray, "h w"]:
    """1 inside of an edge, 0 outside."""
    return 1 / (1 + np.exp(distance / width))


def _vessel(random: np.random.Generator, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A bent tube that passes beside the middle."""
    angle, far = random.uniform(0, 2 * np.pi), random.uniform(20, 58)
    along, across = (
        x * np.cos(angle) + y * np.sin(angle),
        y * np.cos(angle) - x * np.sin(angle) - far,
    )
    bend = random.uniform(2, 8) * np.sin(along / random.uniform(14, 30))
    width, bright = random.uniform(1.2, 3.2), random.uniform(0.25, 0.5)
    part = _soft(np.abs(along - random.uniform(-30, 30)) - random.uniform(25, 70), 6.0)
    return bright * part * np.exp(-(((across - bend) / width) ** 2))


def _bytes(values: np.ndarray) -> np.ndarray:
    return (values.clip(0, 1) * 255).round().astype(np.uint8)
