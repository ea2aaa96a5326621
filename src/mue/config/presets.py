"""Presets: each a function that returns a configuration."""

import difflib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from mue.config.schema import (
    AugmentConfig,
    CodebookConfig,
    Config,
    DataConfig,
    LatentConfig,
    ModelConfig,
    ObjectiveConfig,
    TrainConfig,
)
from mue.errors import MueError

Length = Literal["short", "paper"]
"""Of a preset's training: shortened where numbers hold, or the paper's own."""

AUGMENT = AugmentConfig(rotate=180.0, scale=0.2, shift=0.025, flip=True, intensity=0.1)
_MILESTONES = TrainConfig(
    warmup=200,
    clip=1.0,
    milestones=(0.5, 0.75, 0.9),
    factors=(0.3, 0.1, 0.03),
    ema=0.999,
    validate_every=500,
)
_COSINE = TrainConfig(schedule="cosine", clip=1.0)
_LATE_CODE = ModelConfig(norm="group", code_level=5, join="scale-shift")  # cheap for many codes
_SOFT_START = ObjectiveConfig(temperature=20.0, balance_until=0.12, prior_from=0.05)
_SHARP_START = ObjectiveConfig(sharpness=10.0, balance_until=0.12, prior_from=0.05)


def guess(length: Length = "short") -> Config:
    """The guessing game with the paper's network and method (`vq`, n = 512)."""
    if length == "paper":
        return Config(objective=ObjectiveConfig(prior_from=0.2))
    return Config(
        objective=ObjectiveConfig(reconstruction=0.0125, prior_from=0.1),
        train=replace(_MILESTONES, steps=12_000, lr=1e-3),
    )


def guess_exact(_: Length = "short") -> Config:
    """The guessing game with the paper's widths, trained by the exact likelihood."""
    return Config(
        method="exact",
        model=_LATE_CODE,
        codebook=CodebookConfig(size=8, width=16, spread=1.5),
        objective=replace(_SOFT_START, reconstruction=0.005),
        train=TrainConfig(
            steps=8_000,
            lr=2e-3,
            warmup=100,
            schedule="cosine",
            ema=0.998,
            weight_decay=0.01,
            validate_every=500,
        ),
    )


def guess_quick(_: Length = "short") -> Config:
    """The guessing game for a laptop: half-size digits, a small network, one to three minutes.

    Each round is played 64 times: with `exact` more answers to an input cost next to nothing, and
    the prior sees more of their distribution in a step. With four levels the receptive field of the
    decoder covers the whole row. With two it covers little more than a digit: codes then follow the
    shape of a digit, not its place, and one training in fourteen ends with wrong probabilities for
    some inputs.
    """
    return Config(
        method="exact",
        data=DataConfig(digit=14, answers=64),
        model=replace(
            _LATE_CODE,
            levels=(8, 16, 64, 128),
            tail=(128,),
            widths=(32, 16, 16),
            readout=1,
        ),
        codebook=CodebookConfig(size=8, width=16, spread=1.5, split_every=50),
        objective=replace(_SHARP_START, reconstruction=0.02, balance_until=0.25),
        train=replace(
            _COSINE,
            steps=1800,
            batch=32,
            lr=4e-3,
            warmup=50,
            ema=0.995,
            save_every=200,
            validate_every=450,
        ),
    )


def lidc(length: Length = "short") -> Config:
    """Lesions in CT, the paper's network and method (`vq`, n = 512), a random rater in a step."""
    config = Config(
        data=DataConfig(name="slices", augment=AUGMENT),
        model=ModelConfig(levels=(32, 64, 128, 192), tail=(256, 512), widths=(128, 64, 32)),
        objective=ObjectiveConfig(reconstruction=0.02, prior_from=0.1),
        train=replace(_MILESTONES, steps=3_000, batch=64, lr=5e-4),
    )
    if length == "short":
        return config
    train = TrainConfig(steps=120_000, milestones=(0.25, 0.75), factors=(0.5, 0.1))
    return replace(config, objective=ObjectiveConfig(prior_from=0.2), train=train)


def lidc_small(length: Length = "short") -> Config:
    """The same at a width that fits into 8 MiB."""
    model = ModelConfig(levels=(32, 64, 96, 128), tail=(160, 192), widths=(96, 64, 32))
    return replace(lidc(length), model=model)


def lidc_exact(_: Length = "short") -> Config:
    """Lesions in CT by the exact likelihood and the energy distance, all raters in a step."""
    return Config(
        method="exact",
        data=DataConfig(name="slices", answers=4, augment=AUGMENT),
        model=replace(_LATE_CODE, levels=(32, 64, 128, 160), tail=(192, 192), widths=(128, 64, 32)),
        codebook=CodebookConfig(size=16, width=16, spread=1.5),
        objective=replace(
            _SOFT_START, reconstruction=0.01, energy=10.0, balance_until=0.05, prior_from=0.01
        ),
        train=replace(
            _COSINE,
            steps=6_000,
            batch=32,
            lr=2e-3,
            warmup=100,
            ema=0.999,
            weight_decay=0.05,
            validate_every=500,
            validate_inputs=1000,
            calibrate=True,
        ),
    )


Baseline = Literal["probunet", "unet", "dropout", "ensemble", "mheads"]
_BASELINES: dict[Baseline, tuple[LatentConfig, float]] = {
    "probunet": (LatentConfig(), 0.0),
    "unet": (LatentConfig(), 0.0),
    "dropout": (LatentConfig(), 0.5),
    "ensemble": (LatentConfig(members=4), 0.0),
    "mheads": (LatentConfig(heads=4), 0.0),
}
"""Latent and dropout of the baselines; every data set has a preset of each."""


def _baseline(
    ours: Callable[[Length], Config], kind: Baseline, kl_warmup: float, length: Length
) -> Config:
    """A baseline of a preset of ours, with the KL warm-up of its short schedule alone."""
    return as_baseline(ours(length), kind, kl_warmup if length == "short" else 0.0)


def as_baseline(config: Config, kind: Baseline, kl_warmup: float = 0.0) -> Config:
    """A baseline with the data, the levels, the decoder and the schedule of ours.

    The latent of a Probabilistic U-Net enters after the U-Net, through three 1x1 convolutions. No
    baseline needs the tail, from which ours reads its prior. `kl_warmup` is the share of a
    training over which the KL weight of a Probabilistic U-Net rises; its authors have none, and
    neither has the paper's schedule.
    """
    latent, dropout = _BASELINES[kind]
    method, level, objective = "heads", 1, config.objective
    if kind == "probunet":
        method, level = "probunet", len(config.model.levels) + 1
        objective = replace(objective, prior_from=kl_warmup)
    model = replace(
        config.model, tail=(), code_level=level, join="concatenate", readout=3, dropout=dropout
    )
    return replace(config, method=method, model=model, latent=latent, objective=objective)


def toy(_: Length = "short") -> Config:
    """Bars of light with two known answers each, by `exact`: seconds, for tests and first steps."""
    return Config(
        method="exact",
        data=DataConfig(name="toy"),
        model=replace(_LATE_CODE, levels=(8, 16), tail=(16,), widths=(8,), code_level=3),
        codebook=CodebookConfig(size=6, width=8, spread=1.5),
        objective=ObjectiveConfig(
            reconstruction=0.1, sharpness=10.0, balance_until=0.2, prior_from=0.1
        ),
        train=replace(
            _COSINE, steps=800, batch=64, lr=8e-3, ema=0.99, save_every=200, validate_every=200
        ),
    )


def toy_vq(_: Length = "short") -> Config:
    """The same bars of light by `vq`."""
    return Config(
        data=DataConfig(name="toy"),
        model=ModelConfig(levels=(8, 16), tail=(16,), widths=(8,), standardize=True),
        codebook=CodebookConfig(size=32, width=16, split_every=50),
        objective=ObjectiveConfig(reconstruction=0.1, prior_from=0.1),
        train=replace(
            _COSINE,
            steps=2000,
            batch=64,
            lr=2e-3,
            warmup=30,
            ema=0.997,
            save_every=500,
            validate_every=250,
        ),
    )


def vector(_: Length = "short") -> Config:
    """A one-to-many mapping between vectors with known probabilities, by an MLP."""
    config = toy()
    normal = replace(config.objective, likelihood="normal", deviation=0.1)
    return replace(
        config,
        data=DataConfig(name="vector"),
        model=ModelConfig(
            backbone="mlp", c_in=2, c_out=2, levels=(64, 64), tail=(), widths=(64, 64)
        ),
        codebook=replace(config.codebook, split_every=20),
        objective=replace(normal, reconstruction=0.05),
        train=replace(_COSINE, steps=2000, lr=3e-3, ema=0.998, save_every=500, validate_every=500),
    )


def vector_vq(_: Length = "short") -> Config:
    """The same mapping by `vq`."""
    config, images = vector(), toy_vq()
    return replace(
        config,
        method="vq",
        model=replace(config.model, standardize=True),
        codebook=replace(images.codebook, split_every=0),
        objective=replace(
            images.objective, likelihood="normal", deviation=0.1, reconstruction=0.05
        ),
        train=replace(config.train, lr=2e-3, warmup=30),
    )


PRESETS: dict[str, Callable[[Length], Config]] = {
    "guess": guess,
    "guess-exact": guess_exact,
    "guess-quick": guess_quick,
    "lidc": lidc,
    "lidc-small": lidc_small,
    "lidc-exact": lidc_exact,
    "toy": toy,
    "toy-vq": toy_vq,
    "vector": vector,
    "vector-vq": vector_vq,
    **{
        f"{name}-{kind}": functools.partial(_baseline, ours, kind, kl_warmup)
        for name, ours, kl_warmup in (
            ("guess", guess, 0.5),
            ("lidc", lidc, 0.0),
            ("toy", toy_vq, 0.5),
        )
        for kind in _BASELINES
    },
}
"""Every preset by the name the command line gives it."""


def preset(name: str, length: Length = "short") -> Config:
    """The preset of that name, its schedule shortened where numbers hold, or the paper's own.

    A preset that the paper has no run of takes either schedule for the same.
    """
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}?" if close else f"take one of {', '.join(PRESETS)}"
        raise MueError(f"there is no preset {name!r}; {hint}")
    return PRESETS[name](length)
