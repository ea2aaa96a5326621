"""Samples of a Gaussian latent: where they are dense, and which modes they become."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mue.data.build import build_source
from mue.data.prepared.splits import Split
from mue.inference.predictor import Predictor
from mue.metrics.modes import nearest_mode


@dataclass(frozen=True, slots=True)
class LatentSamples:
    """Samples of a Probabilistic U-Net for inputs whose modes, of probability `true`, are known.

    `mode` is the one that a sample is nearest to, `log_density` that of `Predictor.densities`.
    """

    mode: Int[Tensor, "b k"]
    log_density: Float[Tensor, "b k"]
    true: Float[Tensor, "b m"]
    group: tuple[str, ...]

    def frequency(self) -> Float[Tensor, "b m"]:
        """Share of the samples of each input that is nearest to each mode."""
        return F.one_hot(self.mode, self.true.shape[1]).float().mean(dim=1)


def latent_samples(
    predictor: Predictor, *, split: Split = "test", inputs: int = 1000, k: int = 16, seed: int = 0
) -> LatentSamples:
    """K samples for each input, with their modes and the densities of their latents."""
    source = build_source(predictor.config.data, split, seed=seed, device=predictor.device)
    generator = torch.Generator().manual_seed(seed)
    batches: list[tuple[Tensor, ...]] = []
    group: list[str] = []
    for index in torch.arange(inputs, device=predictor.device).split(50):
        case = source.case(index)
        y, log_density = predictor.densities(case.x, k, generator=generator, normalized=True)
        batches.append((nearest_mode(y, case.ys).cpu(), log_density.cpu(), case.q.cpu()))
        group.extend(case.group)
    mode, log_density, true = (torch.cat(tensors) for tensors in zip(*batches, strict=True))
    return LatentSamples(mode, log_density, true, tuple(group))
