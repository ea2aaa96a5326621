"""A configuration chosen from the data and the device: `mue train auto`.

Where a data set is like that of a preset the choice is the preset's: slices of 128 x 128 with four
raters on a GPU are trained as by `lidc-exact`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from mue.config.presets import AUGMENT, Baseline, as_baseline, lidc_exact
from mue.config.schema import Config, NormalizeConfig, TrainConfig
from mue.errors import MueError

STEPS: dict[str, int] = {"cuda": 6000, "cpu": 2000}
"""Steps of a training where time is no matter."""
MINUTES = 5.0
"""Time for a training on a CPU, where nothing else is said."""
ANSWERS = 16
"""Answers sampled in a step where raters have weights: each costs next to nothing."""
_LONGEST_SIDE = {"cuda": 256, "cpu": 128}  # of a patch
_PIXELS = {"cuda": 1 << 20, "cpu": 1 << 15}  # of a batch: on a CPU more steps help more
_VALIDATED = {"cuda": 1 << 27, "cpu": 1 << 22}  # pixels of the inputs of a validation
_WIDTHS = {"cuda": (32, 64, 128, 160, 192, 192, 192), "cpu": (8, 16, 32, 64, 64, 64, 64)}
_LEVELS = 5  # that feed the decoder, at most
_FEWEST_STEPS = 200
_VALIDATIONS, _PATIENCE = 20, 10  # as the learning rate decays, the score often improves late


@dataclass(frozen=True, slots=True, kw_only=True)
class DataStatistics:
    """What is known of prepared data before anything is learned.

    Attributes:
        images: Images of each split: `train`, `val` and `test`.
        channels: Of an image.
        labels: Names of the classes, the background first; at most two are one mask.
        values: Of the classes in the files.
        normalize: What suits the values of the images.
        shortest: Smallest height and width of a training image.
        median: Median height and width of the training images.
        longest: Largest height and width of a training image.
        raters: Smallest and largest number of raters of a training image.
        weighted: Whether some raters weigh more than others.
        oriented: Whether images can be told from their mirror images.
    """

    images: Mapping[str, int]
    channels: int
    labels: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
    normalize: NormalizeConfig = field(default_factory=NormalizeConfig)
    shortest: tuple[int, int]
    median: tuple[int, int]
    longest: tuple[int, int]
    raters: tuple[int, int]
    weighted: bool = False
    oriented: bool = False


EXAMPLE = DataStatistics(
    images={"train": 1, "val": 1},
    channels=1,
    shortest=(128, 128),
    median=(128, 128),
    longest=(128, 128),
    raters=(4, 4),
)
"""Like LIDC."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A configuration, and why: a sentence by the name of the value that it is about."""

    config: Config
    reasons: dict[str, str]

    def as_baseline(self, kind: Baseline) -> Choice:
        """A baseline by the same settings."""
        about = {"method": f"a baseline ({kind}) with the same data, levels, batch and schedule"}
        dropped = ("codebook.", "objective.", "train.calibrate")
        kept = {name: why for name, why in self.reasons.items() if not name.startswith(dropped)}
        train = replace(self.config.train, calibrate=False)  # there is nothing to calibrate
        return Choice(as_baseline(replace(self.config, train=train), kind), kept | about)

    def within(self, minutes: float, seconds: float) -> Choice:
        """As many steps as fit into some minutes, where a step takes so many seconds.

        A quarter of the time is left to validation and calibration.
        """
        if not minutes > 0:
            raise MueError(f"--minutes must be positive, got {minutes:g}")
        wanted, fitting = self.config.train.steps, int(0.75 * 60 * minutes / seconds)
        steps = max(_FEWEST_STEPS, min(wanted, fitting))
        took = f"a step takes {seconds:.3g} s here, measured"
        if fitting >= wanted:
            why = f"{wanted}: {took}, so that this fits into {minutes:g} minutes"
        elif fitting >= _FEWEST_STEPS:
            why = f"{steps} of {wanted}: what fits into {minutes:g} minutes (--minutes); {took}"
        else:
            why = f"{steps}, the fewest: {minutes:g} minutes are enough for {fitting}; {took}"
        return self.with_steps(steps, why)

    def with_steps(self, steps: int, why: str) -> Choice:
        """Another number of steps, and what depends on it."""
        config = replace(self.config, train=_schedule(self.config, steps))
        return Choice(config, self.reasons | {"train.steps": why})

    def kept_in(self, config: Config) -> dict[str, str]:
        """The reasons for what was not changed by hand in a configuration."""

        def value(name: str, of: Config) -> object:
            return functools.reduce(getattr, name.split("."), of)

        return {n: r for n, r in self.reasons.items() if value(n, config) == value(n, self.config)}


def choose(s: DataStatistics, device: Literal["cpu", "cuda"]) -> Choice:
    """The configuration that suits a data set on a device, with a reason for each choice."""
    if not s.images.get("train"):
        raise MueError(
            f"training needs at least one image of the split train, and the data have none "
            f"({sum(s.images.values())} of others); give more patients, or say by --splits which "
            "are for training when you import"
        )
    base, reasons = lidc_exact(), dict[str, str]()
    patch, trained, reasons["data.patch"] = _patch(s, device)
    pixels = trained[0] * trained[1]
    depth = max(3, int(math.log2(max(4, min(trained)))) - 1)  # the coarsest level has 4 to 7 pixels
    levels = min(_LEVELS, depth, max(math.ceil(2 * depth / 3), _levels_to_see(max(trained))))
    tail = min(2, depth - levels)
    widths = _WIDTHS[device][: levels + tail]
    reasons["model.levels"] = (
        f"{levels} and a tail of {tail}: {min(trained)} pixels are halved down to "
        f"{min(trained) >> (levels + tail - 1)}"
    )
    size = f"{widths[0]} channels at the finest level"
    reasons["model.widths"] = (
        f"{size}, for a GPU" if device == "cuda" else f"{size}, for a CPU; a GPU would have 32"
    )
    classes = len(s.labels)
    several = classes > 2
    max_raters = s.raters[1]
    codes = min(16, max(8, 4 * max_raters))
    batch = max(4, min(32 if pixels >= 1 << 13 else 64, _PIXELS[device] // pixels))
    reasons["train.batch"] = f"{batch}: {batch * pixels:,} pixels in a step"
    reasons["codebook.size"] = f"{codes} codes: four for each of {max_raters} raters, 8 to 16"
    reasons["method"] = "exact: so few codes are all decoded, and no posterior encoder is needed"
    reasons["objective.energy"] = "likelihood and energy distance, which is what `ged` measures"
    if several:
        reasons["objective.likelihood"] = (
            f"categorical: {classes - 1} classes and the background; IoU is the mean over classes"
        )
    answers = ANSWERS if s.weighted else min(ANSWERS, max_raters)
    reasons["data.answers"] = _answers_reason(s, answers)
    reasons["data.normalize"] = f"{s.normalize.kind}, as was chosen when the data were imported"
    augment = AUGMENT
    if s.oriented:
        augment = replace(augment, rotate=15.0, flip=False)
        reasons["data.augment"] = (
            "no mirroring, rotation by at most 15°: these images can be told from mirrored ones"
        )
    else:
        reasons["data.augment"] = "rotation, mirroring, scale, contrast: nothing tells up from down"
    config = replace(
        base,
        data=replace(
            base.data,
            answers=answers,
            patch=patch,
            foreground=1 / 3 if any(patch) else 0.0,
            labels=s.labels,
            values=s.values,
            normalize=s.normalize,
            augment=augment,
        ),
        model=replace(
            base.model,
            c_in=s.channels,
            c_out=classes if several else 1,
            levels=widths[:levels],
            tail=widths[levels:],
            widths=widths[levels - 2 :: -1],
            code_level=levels + 1,
        ),
        codebook=replace(base.codebook, size=codes),
        objective=replace(
            base.objective,
            likelihood="categorical" if several else "bernoulli",
            reconstruction=round(0.01 * 2**14 / pixels, 6),
        ),
        train=replace(base.train, batch=batch),
    )
    steps = STEPS[device]
    reasons["train.steps"] = f"{steps}, sooner where validation stops it"
    validated = max(1, min(1000, _VALIDATED[device] // (s.longest[0] * s.longest[1])))
    on = s.images.get("val", 0) > 0
    reasons["train.validate_every"] = (
        f"{_VALIDATIONS} times on up to {validated} images of val; after {_PATIENCE} times without "
        "a better `ged` it stops, and the best weights are kept"
        if on
        else "never, and no calibration: there is no image of the split val"
    )
    if on:
        reasons["train.calibrate"] = "the probabilities are calibrated on val at the end"
    train = replace(
        config.train, calibrate=on, validate_inputs=validated, validate_every=int(on), patience=0
    )
    config = replace(config, train=train)
    return Choice(replace(config, train=_schedule(config, steps)), reasons)


def _schedule(config: Config, steps: int) -> TrainConfig:
    """The schedule for a number of steps, with what depends on it."""
    on = config.train.validate_every > 0
    return replace(
        config.train,
        steps=steps,
        warmup=min(100, steps // 10),
        ema=round(1 - 6 / max(300, steps), 4),
        save_every=max(1, steps // 6),
        log_every=max(1, min(50, steps // 20)),
        validate_every=max(1, steps // _VALIDATIONS) if on else 0,
        patience=_PATIENCE if on else 0,
    )


def _levels_to_see(side: int) -> int:
    """The fewest levels for which the decoder's receptive field reaches half of a side.

    Two blocks of three 3x3 convolutions at each level reach 6 (2^levels - 1) pixels to each side.
    """
    return math.ceil(math.log2(side / 12 + 1))


def _patch(
    s: DataStatistics, device: Literal["cpu", "cuda"]
) -> tuple[tuple[int, int], tuple[int, int], str]:
    """`data.patch`, the size that is trained on, and why.

    It is at most the median size: one small image, which is reflected at its edges, does not make
    all patches small.
    """
    longest = _LONGEST_SIDE[device]
    one_size = s.shortest == s.longest
    if one_size and s.shortest[0] * s.shortest[1] <= longest**2:
        return (0, 0), s.shortest, "whole images: all have {} x {} pixels".format(*s.shortest)
    h, w = (min(longest, side) for side in s.median)
    sizes = "{} x {} to {} x {}".format(*s.shortest, *s.longest)
    why = f"{h} x {w} of images of {sizes}, a third of them centred on annotated pixels"
    return (h, w), (h, w), why


def _answers_reason(s: DataStatistics, answers: int) -> str:
    low, high = s.raters
    if high == 1:
        return (
            "1: every image has one rater, so no disagreement can be learned; answers differ only "
            "where alike images were annotated differently"
        )
    if s.weighted:
        return f"{answers} in a step, sampled by the weights of the raters"
    if low < high:
        return f"{answers} in a step; an image has {low} to {high} raters, all of equal weight"
    return f"{answers} in a step: all raters" if answers == high else f"{answers} of {high} raters"
