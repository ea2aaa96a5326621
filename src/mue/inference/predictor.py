"""A trained network that answers inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import cast, get_args, overload

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mue.config.schema import Config
from mue.errors import MueError
from mue.inference import strips
from mue.inference.decoding import for_inference
from mue.inference.inputs import AnyImage, network_batch
from mue.models.heads import Heads
from mue.models.modal import Modal, View, top_codes
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
from mue.objective import pixel_values
from mue.runtime.devices import physical_memory, threads_for
from mue.types import Hypotheses

MAX_SAMPLES = 4096
"""Maximum number of samples of a baseline for an input."""
SAMPLES = 100
"""How many samples of a baseline modes are formed of, where nothing else is said."""
_MAPS, _MAPS_IN_STRIPS = 7, 2  # feature maps of the first level in memory at once, as measured
_MAX_DECODED = 64  # codes that are all decoded: leaving some out would wait for the device


@dataclass(frozen=True, slots=True)
class Answers:
    """The tensors of `Hypotheses`, before they are checked."""

    y: Float[Tensor, "b k *y"]
    prob: Float[Tensor, "b k"]
    code: Int[Tensor, "b k"]


class Predictor:
    """A trained network and the configuration it was trained with. No call depends on another.

    With `half` a network of ours is rounded as a whole, once: each call would have to round its
    weights again otherwise. What decides probabilities is computed in float32 either way.
    """

    cuda_graph = False
    """Whether repeated calls are captured as CUDA graphs."""

    def __init__(
        self, network: Modal | ProbUNet | Heads, config: Config, *, half: bool = False
    ) -> None:
        self.network = for_inference(network)
        self.config = config
        self.half = half
        self._rounded = half and isinstance(network, Modal)
        if self._rounded:
            self.network.to(dtype=self._half_dtype)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.network.parameters()).device

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
        is done already, as in the inputs of a `Source`.

        With `coverage` the result is the `modes` of all answers, as many as must be shown so that
        the answer of a new rater is among them with that probability (`mue calibrate`).
        """
        if coverage is not None:
            return self.modes(
                image, k, generator=generator, normalized=normalized, coverage=coverage
            )
        k = self._count(k)
        if not isinstance(min_prob, Real) or not 0 <= min_prob <= 1:
            raise MueError(f"`min_prob` must be a probability, 0 to 1, got {min_prob!r}")
        generator = generator or torch.Generator().manual_seed(0)
        found = self._answers(
            self._batch(image, normalized=normalized), k, float(min_prob), generator
        )
        return Hypotheses(found.y, found.prob, found.code)

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
        if coverage is not None and (by == "code" or cut not in (None, self.cut)):
            raise MueError(
                "`coverage` is promised of modes at the calibrated cut; leave out `by` and `cut`"
            )
        limit = None if coverage is None else self.limit_for(coverage)
        k = self._count(self._all_answers if k is None else k)
        h: Hypotheses | Answers
        if volume:
            x = self._batch(image, normalized=normalized)
            h = self._volume(x, k, generator, on_slice or (lambda _: None))
        else:
            min_prob = MIN_PROB if k > _MAX_DECODED else 0.0
            h = self.propose(
                image, k, min_prob=min_prob, generator=generator, normalized=normalized
            )
        found = self.group(h, by=by, cut=cut)
        return found if limit is None else found.first(limit[1], coverage=limit[0])

    @property
    def _all_answers(self) -> int:
        """How many answers modes are formed of, where nothing else is said."""
        return min(self.max_answers, SAMPLES if self.is_sampler else MAX_SAMPLES)

    @torch.inference_mode()
    def _volume(
        self,
        slices: Float[Tensor, "d c h w"],
        k: int,
        generator: torch.Generator | None,
        on_slice: Callable[[int], None],
    ) -> Answers:
        """Answers to a volume, each of one code in all slices, which are stacked along the height.

            p(c | volume) = sum_s w_s p(c | x_s),  w_s ~ sum of e (1 - e) over the pixels of slice s

        where e is its expected mask. The mean keeps shares of raters what they are, and no single
        slice can rule out a code, as it could in a product. The weight leaves the choice to the
        slices in which the answers differ: in the others it does not matter. Members, heads and
        samples are as probable as they were, and by the same random numbers in every slice.
        """
        codes = self._codes_of(slices, k) if isinstance(self.network, Modal) else None
        (d, _, h, w), y = slices.shape, None
        probs, weights = list[Tensor](), list[Tensor]()
        state = (generator or torch.Generator().manual_seed(0)).get_state()
        for i, x in enumerate(slices.split(1)):
            if codes is None:
                same = torch.Generator()
                same.set_state(state)
                found = self._answers(x, k, 0.0, same)
            else:
                found = self._of_codes(x, codes)
            if y is None:
                shape = (1, *found.y.shape[1:3], d * h, w)
                self._require_memory(2 * math.prod(shape), f"the answers to {d} slices")
                y = torch.empty(shape, dtype=torch.float16, device=x.device)
            y[..., i * h : (i + 1) * h, :] = found.y
            share = (found.prob / found.prob.sum()).to(found.y.dtype)
            expected = torch.einsum("bk,bk...->b...", share, found.y).float()
            weights.append((expected * (1 - expected)).clamp_min(0).sum())
            probs.append(found.prob[0])
            on_slice(i + 1)
        weight = torch.stack(weights).double()
        weight = weight / weight.sum() if weight.sum() > 0 else torch.full_like(weight, 1 / d)
        prob = (weight[:, None] * torch.stack(probs).double()).sum(dim=0).float()
        code = torch.full_like(prob, -1, dtype=torch.long) if codes is None else codes
        order = prob.argsort(descending=True, stable=True)
        _reorder_(cast("Tensor", y), order.tolist())
        return Answers(cast("Tensor", y), prob[None, order], code[None, order])

    def _codes_of(self, slices: Float[Tensor, "d c h w"], k: int) -> Int[Tensor, " k"]:
        """The codes that are decoded in every slice of a volume: all, or the most probable."""
        network = cast("Modal", self.network)
        if network.max_answers <= min(k, _MAX_DECODED):
            return torch.arange(network.max_answers, device=slices.device)
        prior = torch.stack([self._view(x).log_prior[0].exp() for x in slices.split(1)]).mean(dim=0)
        prob, code = prior.topk(min(k, _MAX_DECODED))
        return code[: max(1, int((prob >= MIN_PROB).sum()))]

    def _view(self, x: Float[Tensor, "1 c h w"]) -> View:
        """The features of an image and its prior."""
        self._check_memory(x)
        x, network = x.to(self._half_dtype) if self._rounded else x, cast("Modal", self.network)
        if strips.is_large(network, x):
            return strips.view(network, x)
        with self._precision():
            return network(x)

    def _check_memory(self, x: Tensor) -> None:
        """Refuse an image that the feature maps of a U-Net leave no memory for, before it is full.

        A system that has none left ends a process without a word.
        """
        model = self.config.model
        if model.backbone != "unet" or x.ndim < 4:
            return
        large = strips.is_large(self.network, x)
        pixels, maps = x.shape[-1] * x.shape[-2], _MAPS_IN_STRIPS if large else _MAPS
        needed = 4 * maps * model.levels[0] * pixels * (1 if large else len(x))
        self._require_memory(needed, f"{len(x)} image(s) of {x.shape[-2]} x {x.shape[-1]} pixels")

    def _require_memory(self, needed: int, what: str) -> None:
        """Refuse what takes more memory than the machine has, where that is known."""
        memory = None if self.device.type == "cuda" else physical_memory()
        if memory is not None and needed > memory:
            raise MueError(
                f"{what} take about {needed / 2**30:.0f} GiB of memory with this model, and this "
                f"machine has {memory / 2**30:.0f}; crop them, or give fewer at once"
            )

    def _of_codes(self, x: Float[Tensor, "1 c h w"], code: Int[Tensor, " k"]) -> Answers:
        """The answers of certain codes, in that order."""
        network, view = cast("Modal", self.network), self._view(x)
        log_prior, codes = view.log_prior, network.codebook.codes[code][None]
        if strips.is_large(network, x):
            y = strips.answers(network, view, codes, self._pixels)
        else:
            with self._precision():
                if network.score is None:
                    logits = network.decode(view, codes)
                else:
                    log_prior, every = network.decode_all(view)
                    logits = every[:, code]
            y = self._pixels(logits.float())
        return Answers(y, log_prior.exp()[:, code], code[None])

    @torch.inference_mode()
    def group(self, h: Hypotheses | Answers, *, by: By = "mode", cut: float | None = None) -> Modes:
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

    def limit_for(self, coverage: float) -> tuple[float, float]:
        """The least calibrated coverage that is enough, and the limit of `Modes.first` for it."""
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

    def _answers(self, x: Tensor, k: int, min_prob: float, generator: torch.Generator) -> Answers:
        """What the network proposes for inputs as it takes them."""
        self._check_memory(x)
        if self._rounded:
            x = x.to(self._half_dtype)
        if strips.is_large(self.network, x):
            return self._large(x, k, min_prob if len(x) == 1 else 0.0)
        with self._precision(), threads_for(x.shape, self.config.model.finest):
            found = self.network.propose(x, k, min_prob=min_prob, generator=generator)
        return Answers(self._pixels(found.logits.float()), found.prob.float(), found.code)

    def _large(self, x: Tensor, k: int, min_prob: float) -> Answers:
        """The same for large images, one after another."""
        found: list[Answers] = []
        for image in x.split(1):
            network = cast("Modal", self.network)
            view = self._view(image)
            prob, code = top_codes(view.log_prior, k, min_prob)
            y = strips.answers(network, view, network.codebook.codes[code], self._pixels)
            found.append(Answers(y, prob, code))
        if len(found) == 1:
            return found[0]
        return Answers(*(torch.cat([getattr(f, n) for f in found]) for n in ("y", "prob", "code")))

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
        with self._precision(), threads_for(x.shape, self.config.model.finest):
            found = self.network.sample(x, self._count(k), generator)
        return self._pixels(found.logits.float()), found.log_density - found.peak[:, None]

    @property
    def _half_dtype(self) -> torch.dtype:
        """Half precision: with 11 bits on a GPU, with 8 on a CPU."""
        return torch.float16 if self.device.type == "cuda" else torch.bfloat16

    def _precision(self) -> torch.autocast:
        """Autocast, with `half` and a network whose weights stay in float32."""
        enabled = self.half and not self._rounded
        return torch.autocast(self.device.type, dtype=self._half_dtype, enabled=enabled)

    def _count(self, k: int | None) -> int:
        """The number of answers, by default 8 or all there are; refused outside 1..max_answers."""
        k = min(8, self.max_answers) if k is None else k
        if not isinstance(k, Integral) or isinstance(k, bool) or not 1 <= k <= self.max_answers:
            kind = "codes" if self.codes else "samples" if self.is_sampler else "answers"
            raise MueError(
                f"`k` must be in 1..{self.max_answers} (the {kind} of this model), got {k}"
            )
        return int(k)

    def _pixels(self, logits: Float[Tensor, "b k *y"]) -> Float[Tensor, "b k *y"]:
        """What an answer is, by the likelihood that it was learned with."""
        return pixel_values(logits, self.config.objective.likelihood)

    def _batch(self, image: AnyImage, *, normalized: bool) -> Tensor:
        """The input as a batch that the network takes; else refused."""
        return network_batch(
            image, self.config, axes=self.network.axes, device=self.device, normalized=normalized
        )


def _reorder_(y: Float[Tensor, "1 k *y"], order: list[int]) -> None:
    """Put answers into an order in place: a second copy of a volume's may not fit into memory."""
    placed = set[int]()
    for start in range(len(order)):
        first, at = y[:, start].clone() if start not in placed else None, start
        while at not in placed:
            placed.add(at)
            after = order[at]
            y[:, at] = first if after == start and first is not None else y[:, after]
            at = after
