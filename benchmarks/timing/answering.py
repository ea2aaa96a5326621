"""Answers to one image: how their cost grows with their number, and with the pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mue.config.presets import preset
from mue.config.schema import Config
from mue.inference.load import half_by_default
from mue.inference.predictor import Predictor
from mue.kernels import accelerate
from mue.models.build import build_modal, build_network
from mue.models.modal import Modal
from timing.floor import Limits, Work, count_answers
from timing.timer import Budget, Job, Progress, Timing, interleave

Net = TypeVar("Net", bound=nn.Module)

PRESETS = ("lidc-exact", "lidc-small", "lidc")
"""Whose answers are timed."""
ANSWERS, SIDES, SIDE, AT = (1, 4, 16, 64), (64, 96, 128, 192, 256), 128, 16
"""How many answers, and at which sides; the side of the first, and the number of the second."""


@dataclass(frozen=True, slots=True)
class AnswerTimes:
    """How long k answers to one image take.

    Attributes:
        preset: The network.
        k: How many answers.
        side: Height and width of the image.
        ours: `Predictor.propose`: one pass of the encoder, all codes decoded as one batch.
        work: What was counted.
        naive: One pass of the encoder, then a decoding for each code; contiguous.
        one_by_one: The same in channels_last.
        unet: One pass of a plain U-Net of the same levels and widths, in channels_last.
    """

    preset: str
    k: int
    side: int
    ours: Timing
    work: Work
    naive: Timing | None = None
    one_by_one: Timing | None = None
    unet: Timing | None = None

    def summary(self, limits: Limits, width: int) -> dict[str, Any]:
        """A row of `bench.json`; ours computes with numbers of `width` bytes."""
        mine = self.ours.median
        floor = self.work.floor(limits, width)
        others = {"naive": self.naive, "one_by_one": self.one_by_one, "unet": self.unet}
        return {
            "preset": self.preset,
            "k": self.k,
            "side": self.side,
            "ours": self.ours.summary(),
            **{name: timing.summary() for name, timing in others.items() if timing is not None},
            "ratio": self.naive.median / mine if self.naive else None,
            "of_unet": mine / self.unet.median if self.unet else None,
            "bytes": self.work.bytes(width),
            "operations": self.work.operations,
            "floor_ms": 1e3 * floor,
            "share": floor / mine,
        }


def with_codes(config: Config, codes: int) -> Config:
    """The same network with at least so many codes: decoding does not cost more by that."""
    size = max(config.codebook.size, codes)
    return replace(config, codebook=replace(config.codebook, size=size))


def plain_unet(config: Config) -> Config:
    """A U-Net of the same levels, widths and normalization that takes no code."""
    model = replace(config.model, tail=(), code_level=1, join="concatenate")
    train = replace(config.train, calibrate=False)  # one answer has no probabilities
    return replace(config, method="heads", model=model, train=train)


class AnswerJobs:
    """A network with fresh weights and one image: a job for each way to answer."""

    def __init__(self, config: Config, side: int, device: torch.device, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.image = torch.rand(1, config.model.c_in, side, side, generator=generator).to(device)
        self.x = self.image.contiguous(memory_format=torch.channels_last)
        last, first = torch.channels_last, torch.contiguous_format
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = _frozen(build_modal(config), device, last)
            self.predictor = accelerate(Predictor(network, config, half=half_by_default(device)))
            self.channels_last = _frozen(build_modal(config), device, last)
            self.contiguous = _frozen(build_modal(config), device, first)
            self.plain_unet = _frozen(build_network(plain_unet(config)), device, last)

    def ours(self, k: int) -> Job:
        """As `mue predict` answers."""
        return lambda: self.predictor.propose(self.image, k, normalized=True)

    def naive(self, k: int) -> Job:
        """Code by code, contiguous."""
        return lambda: _one_by_one(self.contiguous, self.image, k)

    def one_by_one(self, k: int) -> Job:
        """Code by code, in channels_last."""
        return lambda: _one_by_one(self.channels_last, self.x, k)

    def unet(self) -> Job:
        """One pass of the plain U-Net."""

        @torch.inference_mode()
        def job() -> Tensor:
            return self.plain_unet(self.x)

        return job


def _frozen(network: Net, device: torch.device, memory_format: torch.memory_format) -> Net:
    network.requires_grad_(False)
    network.to(device=device, memory_format=memory_format)  # pyright: ignore[reportCallIssue]
    return network.eval()


@torch.inference_mode()
def _one_by_one(network: Modal, x: Tensor, k: int) -> Tensor:
    view = network(x)
    code = view.log_prior.topk(k, dim=1).indices
    codes = network.codebook.codes[code]
    answers = [network.decode(view, codes[:, i : i + 1]) for i in range(k)]
    return torch.cat(answers, dim=1).sigmoid()


def measure_answers(
    device: torch.device,
    presets: Sequence[str],
    ks: Sequence[int],
    budget: Budget,
    *,
    side: int = SIDE,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[AnswerTimes]:
    """Time k answers to one image for each k, in every way, in turn."""
    found: list[AnswerTimes] = []
    for name in presets:
        config = with_codes(preset(name), max(ks))
        jobs = AnswerJobs(config, side, device, seed)
        for i, k in enumerate(ks):
            ways = {
                "ours": jobs.ours(k),
                "naive": jobs.naive(k),
                "one_by_one": jobs.one_by_one(k),
                "unet": jobs.unet(),
            }
            found.append(_times(name, config, k, side, interleave(ways, device, budget)))
            if progress is not None:
                progress(f"{name}, answers", i + 1, len(ks))
    return found


def measure_sides(
    device: torch.device,
    presets: Sequence[str],
    sides: Sequence[int],
    budget: Budget,
    *,
    k: int = AT,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[AnswerTimes]:
    """Time k answers to images of several sizes, in turn."""
    found: list[AnswerTimes] = []
    for name in presets:
        config = with_codes(preset(name), k)
        jobs = {str(side): AnswerJobs(config, side, device, seed).ours(k) for side in sides}
        show = partial(progress, f"{name}, sides") if progress else None
        times = interleave(jobs, device, budget, show)
        found += [_times(name, config, k, side, {"ours": times[str(side)]}) for side in sides]
    return found


def _times(
    name: str, config: Config, k: int, side: int, times: Mapping[str, Timing]
) -> AnswerTimes:
    work = count_answers(config, k, (side, side))
    return AnswerTimes(preset=name, k=k, side=side, work=work, **times)
