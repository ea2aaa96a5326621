"""Answers to one image: how their cost grows with their number, and with the pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mue.config.presets import preset
from mue.config.schema import Config
from mue.inference.load import halves
from mue.inference.predictor import Predictor
from mue.models.build import build_modal, build_network
from mue.models.modal import Modal
from timing.floor import Limits, Work, count_answers
from timing.timer import Job, Patience, Timing, Watch, interleave

Net = TypeVar("Net", bound=nn.Module)

PRESETS = ("lidc-exact", "lidc-small", "lidc")
"""Whose answers are timed."""
ANSWERS, SIDES, SIDE, AT = (1, 4, 16, 64), (64, 96, 128, 192, 256), 128, 16
"""How many answers, and at which sides; the side of the first, and the number of the second."""


@dataclass(frozen=True, slots=True)
class Answers:
    """How long k answers to one image take.

    Attributes:
        preset: The network.
        k: How many answers.
        side: Height and width of the image.
        ours: One look, all codes in one decoding.
        work: What was counted.
        naive: One look, then a decoding for each code: contiguous, as torch comes.
        apart: The same in our layout.
        unet: One pass of a plain U-Net of the same levels and widths, in our layout.
    """

    preset: str
    k: int
    side: int
    ours: Timing
    work: Work
    naive: Timing | None = None
    apart: Timing | None = None
    unet: Timing | None = None

    def summary(self, limits: Limits, width: int) -> dict[str, Any]:
        """A row of `bench.json`; ours computes with numbers of `width` bytes."""
        mine = self.ours.median
        floor = self.work.floor(limits, width)
        others = {"naive": self.naive, "apart": self.apart, "unet": self.unet}
        beside = {name: timing.summary() for name, timing in others.items() if timing is not None}
        return {
            "preset": self.preset,
            "k": self.k,
            "side": self.side,
            "ours": self.ours.summary(),
            **beside,
            "ratio": self.naive.median / mine if self.naive else None,
            "of_apart": mine / self.apart.median if self.apart else None,
            "of_unet": mine / self.unet.median if self.unet else None,
            "bytes": self.work.bytes(width),
            "operations": self.work.operations,
            "floor_ms": 1e3 * floor,
            "share": floor / mine,
        }


def answering_config(config: Config, codes: int) -> Config:
    """The same network with at least so many codes: decoding does not cost more by that."""
    size = max(config.codebook.size, codes)
    return replace(config, codebook=replace(config.codebook, size=size))


def plain_unet(config: Config) -> Config:
    """A U-Net of the same levels, widths and normalization that takes no code."""
    model = replace(config.model, tail=(), code_level=1, join="concatenate")
    return replace(config, method="heads", model=model)


class Asked:
    """A network with fresh weights, and one image: what is timed, way by way."""

    def __init__(self, config: Config, side: int, device: torch.device, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(1, config.model.c_in, side, side, generator=generator).to(device)
        self.image = x
        self.x = x.contiguous(memory_format=torch.channels_last)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.predictor = Predictor(
                _still(build_modal(config), device, fast=True), config, half=halves(device)
            )
            self.modal = _still(build_modal(config), device, fast=True)
            self.contiguous = _still(build_modal(config), device, fast=False)
            self.unet = _still(build_network(plain_unet(config)), device, fast=True)

    def ours(self, k: int) -> Job:
        """As `mue predict` asks."""
        return lambda: self.predictor.propose(self.image, k)

    def naive(self, k: int) -> Job:
        """Code by code, contiguous."""
        return lambda: _one_by_one(self.contiguous, self.image, k)

    def apart(self, k: int) -> Job:
        """Code by code, in our layout."""
        return lambda: _one_by_one(self.modal, self.x, k)

    def plain(self) -> Job:
        """One pass of the plain U-Net."""

        @torch.inference_mode()
        def job() -> Tensor:
            return self.unet(self.x)

        return job


def _still(network: Net, device: torch.device, *, fast: bool) -> Net:
    layout = torch.channels_last if fast else torch.contiguous_format
    network.requires_grad_(False)
    network.to(device=device, memory_format=layout)  # pyright: ignore[reportCallIssue]
    return network.eval()


@torch.inference_mode()
def _one_by_one(network: Modal, x: Tensor, k: int) -> Tensor:
    view = network(x)
    _, code = network.top(view, k)
    codes = network.codebook.codes[code]
    answers = [network.decode(view, codes[:, i : i + 1]) for i in range(k)]
    return torch.cat(answers, dim=1).sigmoid()


def measure_answers(
    device: torch.device,
    presets: Sequence[str],
    ks: Sequence[int],
    patience: Patience,
    *,
    side: int = SIDE,
    seed: int = 0,
    watch: Watch | None = None,
) -> list[Answers]:
    """Time k answers to one image for each k, in every way, in turn."""
    found: list[Answers] = []
    for name in presets:
        config = answering_config(preset(name), max(ks))
        asked = Asked(config, side, device, seed)
        for i, k in enumerate(ks):
            jobs = {
                "ours": asked.ours(k),
                "naive": asked.naive(k),
                "apart": asked.apart(k),
                "unet": asked.plain(),
            }
            times = interleave(jobs, device, patience)
            found.append(_answers(name, config, k, side, times))
            if watch is not None:
                watch(f"{name}, answers", i + 1, len(ks))
    return found


def measure_sides(
    device: torch.device,
    presets: Sequence[str],
    sides: Sequence[int],
    patience: Patience,
    *,
    k: int = AT,
    seed: int = 0,
    watch: Watch | None = None,
) -> list[Answers]:
    """Time k answers to images of several sizes, in turn."""
    found: list[Answers] = []
    for name in presets:
        config = answering_config(preset(name), k)
        jobs = {side: Asked(config, side, device, seed).ours(k) for side in sides}
        named = {str(side): job for side, job in jobs.items()}

        def tell(done: int, total: int, name: str = name) -> None:
            if watch is not None:
                watch(f"{name}, sides", done, total)

        times = interleave(named, device, patience, tell)
        for side in sides:
            one = {"ours": times[str(side)]}
            found.append(_answers(name, config, k, side, one))
    return found


def _answers(name: str, config: Config, k: int, side: int, times: Mapping[str, Timing]) -> Answers:
    work = count_answers(config, k, (side, side))
    return Answers(preset=name, k=k, side=side, work=work, **times)
