"""A trained network that answers inputs, and groups its answers into modes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import get_args, overload

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mue.config.schema import Config
from mue.errors import MueError
from mue.inference.forward import MAX_DECODED, ForwardPass
from mue.inference.inputs import AnyImage, network_batch
from mue.inference.volume import volume_answers
from mue.models.heads import Heads
from mue.models.modal import Modal
from mue.models.probunet import ProbUNet
from mue.modes import (
    MIN_PROB,
    By,
    Distance,
    Kind,
    ModeRule,
    Modes,
    Ranking,
    Tree,
    masks_of,
    modes_of,
    ranking,
)
from mue.types import Hypotheses

MAX_SAMPLES = 4096
"""Maximum number of samples of a baseline for an input."""
MODE_SAMPLES = 100
"""How many samples of a baseline modes are formed of, where nothing else is said."""


class Predictor:
    """A trained network and the configuration it was trained with. No call depends on another."""

    cuda_graph = False
    """Whether repeated calls are captured as CUDA graphs."""

    def __init__(
        self, network: Modal | ProbUNet | Heads, config: Config, *, half: bool = False
    ) -> None:
        self._forward = ForwardPass(network, config, half=half)
        self.network = self._forward.network
        self.config = config
        self.half = half

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._forward.device

    @property
    def codes(self) -> int:
        """How many codes it ranks; 0 for a model without codes."""
        return self.network.max_answers if isinstance(self.network, Modal) else 0

    @property
    def max_answers(self) -> int:
        """Maximum `k` of `propose`."""
        return MAX_SAMPLES if self.network.max_answers is None else self.network.max_answers

    @property
    def is_sampler(self) -> bool:
        """Whether its answers are random samples, as those of some baselines."""
        return self.network.max_answers is None

    @overload
    def propose(
        self,
        image: AnyImage,
        k: int | None = None,
        *,
        min_prob: float = 0.0,
        generator: torch.Generator | None = None,
        normalized: bool = False,
    ) -> Hypotheses: ...

    @overload
    def propose(
        self,
        image: AnyImage,
        k: int | None = None,
        *,
        generator: torch.Generator | None = None,
        normalized: bool = False,
        coverage: float,
    ) -> Modes: ...

    @torch.inference_mode()
    def propose(
        self,
        image: AnyImage,
        k: int | None = None,
        *,
        min_prob: float = 0.0,
        generator: torch.Generator | None = None,
        normalized: bool = False,
        coverage: float | None = None,
    ) -> Hypotheses | Modes:
        """The k most probable answers to each input, from one forward pass: 8, or all there are.

        Answers less probable than `min_prob` are not kept, except for the first: their probability
        is 0 and its mass in `rest`. Where this is so for every input of the batch, they are not
        decoded either.

        A baseline that samples takes k samples by the generator (without one, by seed 0), each of
        probability 1/k.

        An image is c h w (or h w where the model takes one channel); a vector is c. One more axis
        in front makes a batch; the result always has one: an image alone is a batch of one.

        An image holds the values of its file, of any type: each of a batch is normalized by itself
        as `mue predict` does and training did, by `config.data.normalize`. With `normalized` that
        is done already, as in the inputs of a `Source`. An image of Pillow is read as its file is:
        turned as EXIF says, and as grey or in colour, which the model takes.

        With `coverage` the result is the `modes` of all answers, as many as must be shown so that
        the answer of a new rater is among them with that probability (`mue calibrate`).
        """
        if coverage is not None:
            return self.modes(
                image, k, generator=generator, normalized=normalized, coverage=coverage
            )
        k = self.count(k)
        if not isinstance(min_prob, Real) or not 0 <= min_prob <= 1:
            raise MueError(f"`min_prob` must be a probability, 0 to 1, got {min_prob!r}")
        generator = generator or torch.Generator().manual_seed(0)
        x = self._batch(image, normalized=normalized)
        found = self._answers(x, k, float(min_prob), generator)
        found.check()
        return found

    def modes(
        self,
        image: AnyImage,
        k: int | None = None,
        *,
        by: By = "mode",
        cut: float | None = None,
        coverage: float | None = None,
        generator: torch.Generator | None = None,
        normalized: bool = False,
        volume: bool = False,
        on_slice: Callable[[int], None] | None = None,
    ) -> Modes:
        """The answers to each input as modes, from one forward pass: over all codes, or k answers.

        `cut` is the level of the tree, by default the one that calibration chose. `coverage` asks
        for as many modes as hold the answer of a new rater with that probability.

        With `volume` the inputs are the slices of one volume. Its answers, a batch of one, have one
        code through all slices, which are stacked along the height: c d*h w. `on_slice` is called
        with the number of slices that are done.
        """
        if by not in get_args(By):
            raise MueError(f"`by` must be mode or code, got {by!r}")
        for name, value in (("cut", cut), ("coverage", coverage)):
            if value is not None and not isinstance(value, Real):
                raise MueError(f"`{name}` must be a number, got {value!r}")
        limit = None if coverage is None else self.limit_for(coverage, by=by, cut=cut)
        k = self.count(self._all_answers if k is None else k)
        if volume:
            x = self._batch(image, normalized=normalized)
            h = self._volume(x, k, generator, on_slice)
        else:
            min_prob = MIN_PROB if k > MAX_DECODED else 0.0
            h = self.propose(
                image, k, min_prob=min_prob, generator=generator, normalized=normalized
            )
        found = self.group(h, by=by, cut=cut)
        return found if limit is None else found.first(limit[1], coverage=limit[0])

    @property
    def _all_answers(self) -> int:
        """How many answers modes are formed of, where nothing else is said."""
        return min(self.max_answers, MODE_SAMPLES if self.is_sampler else MAX_SAMPLES)

    def _answers(
        self, x: Tensor, k: int, min_prob: float, generator: torch.Generator
    ) -> Hypotheses:
        """What the network answers, not checked."""
        return self._forward.answers(x, k, min_prob, generator)

    @torch.inference_mode()
    def _volume(
        self,
        slices: Float[Tensor, "d c h w"],
        k: int,
        generator: torch.Generator | None,
        on_slice: Callable[[int], None] | None,
    ) -> Hypotheses:
        """The answers to a volume."""
        if isinstance(self.network, Modal):
            codes = self._forward.codes_of_volume(slices, k)

            def answer(x: Tensor) -> Hypotheses:
                return self._forward.of_codes(x, codes)
        else:
            state = (generator or torch.Generator().manual_seed(0)).get_state()

            def answer(x: Tensor) -> Hypotheses:
                same = torch.Generator()
                same.set_state(state)
                return self._answers(x, k, 0.0, same)

        return volume_answers(slices, answer, on_slice or (lambda _: None))

    @torch.inference_mode()
    def group(self, h: Hypotheses, *, by: By = "mode", cut: float | None = None) -> Modes:
        """Group answers of this model by its rule, or at another `cut`."""
        rule = self.rule if cut is None else replace(self.rule, cut=cut)
        tree, ranked = self._ranked(h.y, h.prob, rule, by)
        return modes_of(h.y, rule.kept(h.prob), h.code, tree, rule.cut, ranked)

    def _ranked(self, y: Tensor, prob: Tensor, rule: ModeRule, by: By) -> tuple[Tree, Ranking]:
        """The tree of answers, and its modes."""
        tree = rule.tree(rule.distance(y, y), prob, by=by)
        return tree, ranking(tree, rule.kept(prob), rule.cut)

    @property
    def kind(self) -> Kind:
        """What its answers are."""
        likelihood = self.config.objective.likelihood
        if likelihood == "normal" or self.network.axes == 1:
            return "vectors"
        return "classes" if likelihood == "categorical" else "masks"

    @property
    def rule(self) -> ModeRule:
        """Which of its answers are one mode."""
        return ModeRule(self.kind, self.cut)

    @property
    def distance(self) -> Distance:
        """Of two answers: 1 - IoU, or where answers are no masks the l2 distance."""
        return self.rule.distance

    def masks(self, y: Float[Tensor, "b k c h w"]) -> Bool[Tensor, "b k c_ h w"]:
        """Answers as masks, one for each class that is not the background."""
        return masks_of(y, self.kind)

    @property
    def cut(self) -> float:
        """Distance beyond which groups of answers stay apart.

        Two normal distributions have one maximum together up to a distance of two deviations.
        """
        if chosen := self.config.modes.cut:
            return chosen
        return 2 * self.config.objective.deviation if self.kind == "vectors" else 0.5

    def limit_for(
        self, coverage: float, *, by: By = "mode", cut: float | None = None
    ) -> tuple[float, float]:
        """The least calibrated coverage that is enough, and the limit of `Modes.first` for it."""
        if by == "code" or cut not in (None, self.cut):
            raise MueError(
                "`coverage` is promised of modes at the calibrated cut; leave out `by` and `cut`"
            )
        known = self.config.modes.coverage
        if not known:
            raise MueError(
                f"a `coverage` of {coverage:g} cannot be promised by a model that was not "
                "calibrated for it; run `mue calibrate` first"
            )
        for pair in zip(known, self.config.modes.limits, strict=True):
            if 0 < coverage <= pair[0]:
                return pair
        raise MueError(
            f"`coverage` must be in (0, {known[-1]:g}], the highest that this model was calibrated "
            f"for, got {coverage:g}; `mue calibrate --coverage` asks for more where it is reachable"
        )

    @torch.inference_mode()
    def densities(
        self,
        image: AnyImage,
        k: int | None = None,
        *,
        generator: torch.Generator | None = None,
        normalized: bool = False,
    ) -> tuple[Float[Tensor, "b k *y"], Float[Tensor, "b k"]]:
        """K samples of a Probabilistic U-Net, and the log density of the latent of each.

        The samples are those of `propose` with the same generator. The log density is relative to
        that of the prior's mean, the highest there is for the input, where it is 0.
        """
        if not isinstance(self.network, ProbUNet):
            raise MueError(
                f"a model of the method {self.config.method!r} has no density of a latent; "
                "take a Probabilistic U-Net"
            )
        generator = generator or torch.Generator().manual_seed(0)
        x = self._batch(image, normalized=normalized)
        return self._forward.samples(x, self.count(k), generator)

    def count(self, k: int | None) -> int:
        """The number of answers, by default 8 or all there are; refused outside 1..max_answers."""
        k = min(8, self.max_answers) if k is None else k
        if not isinstance(k, Integral) or isinstance(k, bool) or not 1 <= k <= self.max_answers:
            kind = "codes" if self.codes else "samples" if self.is_sampler else "answers"
            raise MueError(
                f"`k` must be in 1..{self.max_answers} (the {kind} of this model), got {k}"
            )
        return int(k)

    def _batch(self, image: AnyImage, *, normalized: bool) -> Tensor:
        """The input as a batch that the network takes; else refused."""
        return network_batch(
            image, self.config, axes=self.network.axes, device=self.device, normalized=normalized
        )
