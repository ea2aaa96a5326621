"""Everything a run depends on, as values: what is not here cannot change a result."""

import itertools
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from mue.errors import MueError

MAX_VALUE = 65535
"""The largest value of a class in a label map: PNG has 16 bits."""
Contract = tuple[str, Callable[[Any], bool]]
"""What a value must be: in words, and as a predicate, which is false for NaN."""


def _up_to(maximum: int | float) -> Contract:
    return f"in [0, {maximum}]", lambda v: 0 <= v <= maximum


def _within(low: int, high: int) -> Contract:
    return f"in {low}..{high}", lambda v: low <= v <= high


_COUNT: Contract = "at least 1", lambda v: v >= 1
_NOT_NEGATIVE: Contract = "at least 0", lambda v: 0 <= v < math.inf
_POSITIVE: Contract = "positive", lambda v: 0 < v < math.inf
_SPREAD: Contract = "positive", lambda v: 0 < v < 1e6
_SEED: Contract = "in 0..2^63-1", lambda v: 0 <= v < 2**63
_BELOW_ONE: Contract = "in [0, 1)", lambda v: 0 <= v < 1
_OVERLAP: Contract = "in (0, 1]", lambda v: 0 < v <= 1
_SHARE: Contract = "a share of the training in [0, 1]", lambda v: 0 <= v <= 1
_WIDTHS: Contract = (
    "at most 12 widths in 1..4096",
    lambda v: all(1 <= w <= 4096 for w in v) and len(v) <= 12,
)
_FINITE: Contract = "finite", lambda v: all(map(math.isfinite, v))
_SIDES: Contract = (
    "two sides of at least 1, or 0 0",
    lambda v: len(v) == 2 and (min(v) >= 1 or tuple(v) == (0, 0)),
)
_ASCENDING: Contract = (
    "ascending shares in [0, 1]",
    lambda v: list(v) == sorted(v) and all(0 <= m <= 1 for m in v),
)


def _require(holds: bool, name: str, words: str, value: object) -> None:
    if not holds:
        raise MueError(f"{name} must be {words}, got {value!r}")


class _Section:
    """Refuses values that break the contracts in the annotations of their fields."""

    __slots__ = ()
    section = ""

    def __post_init__(self) -> None:
        section = self.section or type(self).__name__.removesuffix("Config").lower()
        for name, hint in typing.get_type_hints(type(self), include_extras=True).items():
            for words, holds in getattr(hint, "__metadata__", ()):
                value = getattr(self, name)
                _require(holds(value), f"{section}.{name}", words, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentConfig(_Section):
    """Random augmentation of a training slice: the largest change of each kind."""

    section = "data.augment"
    rotate: Annotated[float, _up_to(180)] = 0.0
    """Angle in degrees, to either side."""
    scale: Annotated[float, _up_to(4)] = 0.0
    """Factor minus 1, up or down."""
    shift: Annotated[float, _up_to(1)] = 0.0
    """Share of a side, along each axis."""
    flip: bool = False
    """Mirror, left to right and upside down."""
    intensity: Annotated[float, _up_to(0.9)] = 0.0
    """Share by which contrast, brightness and gamma change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizeConfig(_Section):
    """From the values of an image file to those that the network takes."""

    section = "data.normalize"
    kind: Literal["unit", "range", "window", "zscore"] = "unit"
    """`unit`: floats in 0..1 as they are, unsigned integers divided by the maximum of their type or
    of the bits that DICOM stores. `range`:
    (x - low) / (high - low). `window`: clipped to [low, high], then (x - mean) / deviation, as for
    CT. `zscore`: each image by its own mean and deviation."""
    low: Annotated[tuple[float, ...], _FINITE] = ()
    """Of each channel (`range`, `window`)."""
    high: Annotated[tuple[float, ...], _FINITE] = ()
    """Of each channel (`range`, `window`)."""
    mean: Annotated[tuple[float, ...], _FINITE] = ()
    """Of each channel (`window`)."""
    deviation: Annotated[tuple[float, ...], _FINITE] = ()
    """Of each channel (`window`)."""

    def __post_init__(self) -> None:
        _Section.__post_init__(self)
        used = {"range": ("low", "high"), "window": ("low", "high", "mean", "deviation")}
        for name in ("low", "high", "mean", "deviation"):
            value, needed = getattr(self, name), name in used.get(self.kind, ())
            words = f"one number for each channel for the kind {self.kind!r}, as many as low"
            words = words if needed else f"empty for the kind {self.kind!r}"
            holds = len(value) == len(self.low) > 0 if needed else not value
            _require(holds, f"data.normalize.{name}", words, value)
        above = all(low < high for low, high in zip(self.low, self.high, strict=True))
        _require(above, "data.normalize.high", f"above low, {self.low}", self.high)
        positive = all(d > 0 for d in self.deviation)
        _require(positive, "data.normalize.deviation", "positive", self.deviation)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig(_Section):
    """Where inputs and answers come from."""

    name: str = "guess"
    """A data set of `mue.data.build.SOURCES`: generated (`guess`, `toy`, `vector`), or `slices`,
    what `mue data import` prepared."""
    digit: Literal[28, 14] = 28
    """Side of a digit of the guessing game: MNIST's own, or half of it."""
    answers: Annotated[int, _within(1, 64)] = 1
    """Answers to each input in a step: samples of generated data, different raters of a slice."""
    patch: Annotated[tuple[int, int], _SIDES] = (0, 0)
    """Height and width of the patches that are trained on; 0 0 is whole images, all of one size."""
    foreground: Annotated[float, _up_to(1)] = 0.0
    """Share of the patches that are centred on an annotated pixel."""
    labels: tuple[str, ...] = ()
    """Names of the classes, the background first; empty where there is one mask without a name."""
    values: tuple[int, ...] = ()
    """What a pixel of each class is in the files, the background first; empty is 0, 1, 2, …"""
    normalize: NormalizeConfig = field(default_factory=NormalizeConfig)
    """From the values of an image file to those that the network takes."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    """Augmentation of slices."""

    def __post_init__(self) -> None:
        _Section.__post_init__(self)
        check_values(self.values, self.labels, "data.values")


def check_values(values: tuple[int, ...], labels: tuple[str, ...], name: str) -> None:
    """Refuse values of classes that are not different ones for each name, with 0 first."""
    ascending = all(a < b for a, b in itertools.pairwise(values))
    holds = not values or (len(values) == len(labels) and values[0] == 0 and ascending)
    words = f"empty or {len(labels)} ascending numbers from 0 on, one for each name of data.labels"
    _require(holds and all(v <= MAX_VALUE for v in values), name, words, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(_Section):
    """The network θ, and the encoder of φ, which mirrors it."""

    backbone: str = "unet"
    """Encoder and decoder: `unet` for images, `mlp` for vectors, or one that you add to
    `BACKBONES` in mue/models/build.py."""
    c_in: Annotated[int, _within(1, 4096)] = 1
    """Channels of an input."""
    c_out: Annotated[int, _within(1, 4096)] = 1
    """Channels of an answer."""
    levels: Annotated[tuple[int, ...], _WIDTHS, ("at least one width", bool)] = (16, 32, 64, 128)
    """Widths of the encoder's levels that feed the decoder, the finest first."""
    tail: Annotated[tuple[int, ...], _WIDTHS] = (128, 128)
    """Widths of the levels below, for prior and encoding alone."""
    widths: Annotated[tuple[int, ...], _WIDTHS] = (64, 32, 16)
    """Widths of the decoder's stages, the coarsest first; the last stage gives the answer."""
    norm: Literal["none", "group"] = "none"
    """Normalization after each convolution."""
    code_level: int = 1
    """Stage of the decoder where the code enters: 1 is the bottom, one past the last the top."""
    join: Literal["concatenate", "scale-shift"] = "concatenate"
    """How the code enters."""
    readout: Annotated[int, _within(1, 8)] = 2
    """1x1 convolutions after a code that enters at the top. A code that is concatenated needs two:
    a single one would only shift all pixels alike."""
    standardize: bool = False
    """Whether the prior, and the posterior of `vq`, read features standardized by their mean and
    deviation at the start."""
    dropout: Annotated[float, _BELOW_ONE] = 0.0
    """Share of the innermost features that is dropped, in training and in answering (`heads`)."""

    @property
    def finest(self) -> int:
        """Channels of the finest feature map of the encoder or the decoder, whichever has more."""
        return max(self.levels[0], self.widths[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class CodebookConfig(_Section):
    """The finite latent space."""

    size: Annotated[int, _within(1, 65536)] = 512
    """Number of codes: an upper bound on how many different answers there can be."""
    width: Annotated[int, _within(1, 4096)] = 128
    """Length of a code."""
    reads_answers: bool = False
    """Whether the probability of a code also depends on the mask it decodes to (`exact`)."""
    spread: Annotated[float, _SPREAD] = 1.0
    """Deviation of the codes at the start (`exact`; `vq` starts from the encodings)."""
    decay: Annotated[float, _BELOW_ONE] = 0.99
    """Share of the running counts that survives a step (`vq`)."""
    split_every: Annotated[int, _NOT_NEGATIVE] = 0
    """Steps after which a code much worse than the others is split in two; 0 is never."""
    split_until: Annotated[float, _SHARE] = 0.5
    """Share of the training after which no code is split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentConfig(_Section):
    """What the baselines have in place of a code book."""

    width: Annotated[int, _within(1, 4096)] = 6
    """Dimensions of the Gaussian latent (`probunet`)."""
    members: Annotated[int, _within(1, 64)] = 1
    """Networks trained side by side (`heads`): more than one is an ensemble."""
    heads: Annotated[int, _within(1, 64)] = 1
    """Heads of each network (`heads`): of several, the best one learns from an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig(_Section):
    """What is minimised."""

    likelihood: Literal["bernoulli", "categorical", "normal"] = "bernoulli"
    deviation: Annotated[float, _POSITIVE] = 1.0
    """Deviation of an answer from what is decoded, where the likelihood is normal."""
    reconstruction: Annotated[float, _NOT_NEGATIVE] = 1.0
    """Weight of the log-likelihood, which is summed over pixels."""
    energy: Annotated[float, _NOT_NEGATIVE] = 0.0
    """Weight of the energy distance between all answers and the raters' (`exact`)."""
    commitment: Annotated[float, _NOT_NEGATIVE] = 0.25
    """β, the weight of the commitment term (`vq`)."""
    divergence: Annotated[float, _NOT_NEGATIVE] = 10.0
    """β of a Gaussian latent, as a multiple of `reconstruction` (`probunet`)."""
    prior_from: Annotated[float, _SHARE] = 0.0
    """η: share of the training before which the prior's term has weight 0, or over which the
    divergence rises to its weight (`probunet`)."""
    temperature: float = 1.0
    """The responsibilities of `exact` start this soft; 1 is the likelihood's own."""
    balance_until: Annotated[float, _SHARE] = 0.0
    """Share of the training over which they harden and the codes share the answers evenly."""
    sharpness: Annotated[float, _NOT_NEGATIVE] = 0.0
    """Over that time the responsibilities are this sharp however alike the codes still are; 0 takes
    the temperature."""

    def __post_init__(self) -> None:
        _Section.__post_init__(self)
        words = "0 where objective.likelihood is normal, whose answers are no masks"
        masks = self.likelihood != "normal"
        _require(masks or self.energy == 0, "objective.energy", words, self.energy)
        words = "1, or more where objective.balance_until says for how long"
        softens = self.balance_until > 0 and 1 < self.temperature < math.inf
        hard = self.temperature == 1
        _require(hard or softens, "objective.temperature", words, self.temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(_Section):
    """How the weights are found."""

    steps: Annotated[int, _within(1, 10**9)] = 150_000
    batch: Annotated[int, _within(1, 2**24)] = 256
    """Inputs in a step, over all processes together."""
    lr: Annotated[float, _POSITIVE] = 1e-4
    schedule: Literal["milestones", "cosine"] = "milestones"
    milestones: Annotated[tuple[float, ...], _ASCENDING] = (0.2, 0.6, 0.8)
    """Shares of the training at which the learning rate drops."""
    factors: tuple[float, ...] = (0.5, 0.1, 0.05)
    """What it drops to, as a multiple of `lr`."""
    warmup: Annotated[int, _NOT_NEGATIVE] = 0
    """Steps over which the learning rate rises to `lr`."""
    weight_decay: Annotated[float, _NOT_NEGATIVE] = 0.0
    clip: Annotated[float, _NOT_NEGATIVE] = 0.0
    """Largest norm of the gradient; 0 is no limit."""
    ema: Annotated[float, _BELOW_ONE] = 0.0
    """Decay of the exponential moving average of the weights, which is evaluated and exported in
    their place; 0 is no average."""
    seed: Annotated[int, _SEED] = 0
    save_every: Annotated[int, _COUNT] = 1000
    """Steps between checkpoints."""
    log_every: Annotated[int, _COUNT] = 50
    """Steps between lines of the log."""
    validate_every: Annotated[int, _NOT_NEGATIVE] = 0
    """Steps between validations on inputs that are not trained on; the best weights by `ged` (for
    generated data `mode_tv`) are exported in place of the last. 0 is never."""
    validate_inputs: Annotated[int, _COUNT] = 256
    """How many inputs, at most."""
    patience: Annotated[int, _NOT_NEGATIVE] = 0
    """Validations without a better one after which training stops; 0 is never."""
    calibrate: bool = False
    """Whether the exported model is calibrated at the end, as by `mue calibrate`."""

    def __post_init__(self) -> None:
        _Section.__post_init__(self)
        words = f"as many as the {len(self.milestones)} of train.milestones"
        _require(len(self.factors) == len(self.milestones), "train.factors", words, self.factors)
        words = "0 where train.validate_every is 0, which is never"
        _require(
            self.validate_every > 0 or self.patience == 0, "train.patience", words, self.patience
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModesConfig(_Section):
    """How answers are grouped into modes, and how many are shown: what `mue calibrate` finds."""

    cut: Annotated[float, _NOT_NEGATIVE] = 0.0
    """Distance beyond which groups of answers stay apart; 0 is the default of the likelihood: half
    for masks and label maps, two deviations for vectors."""
    iou: Annotated[float, _OVERLAP] = 0.5
    """Overlap from which on an answer is that of a rater."""
    coverage: Annotated[tuple[float, ...], _ASCENDING] = ()
    """Shares of new raters whose answer is to be among the modes that are shown."""
    limits: Annotated[tuple[float, ...], _ASCENDING] = ()
    """For each of them: the probability ranked before the last mode that is shown."""

    def __post_init__(self) -> None:
        _Section.__post_init__(self)
        words = f"as many as the {len(self.coverage)} of modes.coverage"
        _require(len(self.limits) == len(self.coverage), "modes.limits", words, self.limits)


Switch = Literal["auto", "on", "off"]
"""`auto`: where the device can and it is faster. `on`: always, or an error. `off`: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeConfig(_Section):
    """Device, precision and speed. None of it changes what is learned, up to rounding."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; `auto` is a GPU where there is one."""
    bfloat16: Switch = "auto"
    """Autocast to bfloat16; the objective, the code book and the optimizer stay in float32."""
    channels_last: bool = True
    """Memory format of images and convolution weights."""
    kernels: Switch = "auto"
    """Triton kernels for the residual blocks."""
    compile: Switch = "auto"
    """torch.compile of the networks; `auto` is off for short trainings."""
    cuda_graph: Switch = "auto"
    """Capture a training step as a CUDA graph and replay it."""
    resident: Switch = "auto"
    """Keep all prepared data on the device; `off` prefetches each batch from the files."""
    accumulate: Annotated[int, _COUNT] = 1
    """Micro-batches that a batch is split into: less memory, the same gradient."""
    checkpointing: bool = False
    """Activation checkpointing: recompute activations in the backward pass, for less memory."""

    def resolve(self, switch: str, obstacle: str | None, *, default: bool = True) -> bool:
        """Whether a switch is on. Where there is an obstacle, `auto` is off and `on` is refused."""
        wish = getattr(self, switch)
        if wish == "on" and obstacle:
            raise MueError(f"compute.{switch} is on, and {obstacle}; take auto or off")
        return wish == "on" or (wish == "auto" and not obstacle and default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One run."""

    method: Literal["vq", "exact", "probunet", "heads"] = "vq"
    """How it is trained: the paper's nearest code, the likelihood summed over all codes, or a
    baseline: Probabilistic U-Net, or U-Nets without a latent."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    codebook: CodebookConfig = field(default_factory=CodebookConfig)
    latent: LatentConfig = field(default_factory=LatentConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    modes: ModesConfig = field(default_factory=ModesConfig)

    def __post_init__(self) -> None:
        words = f"0 for the method {self.method!r}: only `heads` answers by dropping features"
        holds = self.method == "heads" or self.model.dropout == 0
        _require(holds, "model.dropout", words, self.model.dropout)
        reads = self.codebook.reads_answers
        masks = self.method == "exact" and self.objective.likelihood == "bernoulli"
        words = "off, unless the method is `exact` and objective.likelihood bernoulli"
        _require(masks or not reads, "codebook.reads_answers", words, reads)
        ranks = self.method in ("vq", "exact") and self.objective.likelihood != "normal"
        words = "off, unless the method is `vq` or `exact` and the answers are masks"
        _require(ranks or not self.train.calibrate, "train.calibrate", words, self.train.calibrate)

    @property
    def stochastic(self) -> bool:
        """Whether a training step uses random numbers: a sampled latent, or dropout."""
        return self.method == "probunet" or self.model.dropout > 0
