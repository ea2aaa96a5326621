"""A forward pass of a trained network: its precision, its memory, large images in strips."""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.config.schema import Config
from mue.errors import MueError
from mue.inference import strips
from mue.inference.decoding import for_inference
from mue.models.heads import Heads
from mue.models.modal import Modal, View, top_codes
from mue.models.probunet import ProbUNet
from mue.modes import MIN_PROB
from mue.objective import pixel_values
from mue.runtime.devices import physical_memory, threads_for
from mue.types import Hypotheses

MAX_DECODED = 64
"""Codes that are all decoded: leaving some out would wait for the device."""
_MAPS, _MAPS_IN_STRIPS = 7, 2  # feature maps of the first level in memory at once, as measured


class ForwardPass:
    """A network that answers inputs as it takes them. Its answers are not checked.

    With `half` a network of ours is rounded as a whole, once: each call would have to round its
    weights again otherwise. What decides probabilities is computed in float32 either way.
    """

    def __init__(self, network: Modal | ProbUNet | Heads, config: Config, *, half: bool) -> None:
        self.network = for_inference(network)
        self.config, self.half = config, half
        self._rounded = half and isinstance(network, Modal)
        if self._rounded:
            self.network.to(dtype=self._half_dtype)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.network.parameters()).device

    def answers(self, x: Tensor, k: int, min_prob: float, generator: torch.Generator) -> Hypotheses:
        """The k most probable answers, or k samples, not checked."""
        self._check_memory(x)
        if self._rounded:
            x = x.to(self._half_dtype)
        if strips.is_large(self.network, x):
            return self._large(x, k, min_prob if len(x) == 1 else 0.0)
        with self._precision(), threads_for(x.shape, self.config.model.finest):
            found = self.network.propose(x, k, min_prob=min_prob, generator=generator)
        return Hypotheses.unchecked(
            self._pixels(found.logits.float()), found.prob.float(), found.code
        )

    def _large(self, x: Tensor, k: int, min_prob: float) -> Hypotheses:
        """The same for large images, one after another."""
        found: list[Hypotheses] = []
        for image in x.split(1):
            network = cast("Modal", self.network)
            view = self._view(image)
            prob, code = top_codes(view.log_prior, k, min_prob)
            y = strips.answers(network, view, network.codebook.codes[code], self._pixels)
            found.append(Hypotheses.unchecked(y, prob, code))
        if len(found) == 1:
            return found[0]
        return Hypotheses.unchecked(
            *(torch.cat([getattr(f, n) for f in found]) for n in ("y", "prob", "code"))
        )

    def codes_of_volume(self, slices: Float[Tensor, "d c h w"], k: int) -> Int[Tensor, " k"]:
        """The codes that are decoded in every slice of a volume: all, or the most probable."""
        network = cast("Modal", self.network)
        if network.max_answers <= min(k, MAX_DECODED):
            return torch.arange(network.max_answers, device=slices.device)
        prior = torch.stack([self._view(x).log_prior[0].exp() for x in slices.split(1)]).mean(dim=0)
        prob, code = prior.topk(min(k, MAX_DECODED))
        return code[: max(1, int((prob >= MIN_PROB).sum()))]

    def of_codes(self, x: Float[Tensor, "1 c h w"], code: Int[Tensor, " k"]) -> Hypotheses:
        """The answers of certain codes, in that order, whatever their probability."""
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
        return Hypotheses.unchecked(y, log_prior.exp()[:, code], code[None])

    def samples(
        self, x: Float[Tensor, "b c h w"], k: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, "b k c h w"], Float[Tensor, "b k"]]:
        """Samples of a Probabilistic U-Net and the log density of their latents.

        It is relative to that of the prior's mean, the highest there is for the input.
        """
        network = cast("ProbUNet", self.network)
        with self._precision(), threads_for(x.shape, self.config.model.finest):
            found = network.sample(x, k, generator)
        return self._pixels(found.logits.float()), found.log_density - found.peak[:, None]

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
        what = f"{len(x)} image(s) of {x.shape[-2]} x {x.shape[-1]} pixels"
        require_memory(needed, what, x.device)

    @property
    def _half_dtype(self) -> torch.dtype:
        """Half precision: with 11 bits on a GPU, with 8 on a CPU."""
        return torch.float16 if self.device.type == "cuda" else torch.bfloat16

    def _precision(self) -> torch.autocast:
        """Autocast, with `half` and a network whose weights stay in float32."""
        enabled = self.half and not self._rounded
        return torch.autocast(self.device.type, dtype=self._half_dtype, enabled=enabled)

    def _pixels(self, logits: Float[Tensor, "b k *y"]) -> Float[Tensor, "b k *y"]:
        """What an answer is, by the likelihood that it was learned with."""
        return pixel_values(logits, self.config.objective.likelihood)


def require_memory(needed: int, what: str, device: torch.device) -> None:
    """Refuse what takes more memory than the machine has, where that is known."""
    memory = None if device.type == "cuda" else physical_memory()
    if memory is not None and needed > memory:
        raise MueError(
            f"{what} take about {needed / 2**30:.0f} GiB of memory with this model, and this "
            f"machine has {memory / 2**30:.0f}; crop them, or give fewer at once"
        )
