"""Normalization of images: from the values of a file to those that a network takes."""

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from mue.config.schema import NormalizeConfig
from mue.errors import MueError

_SMALLEST = 1e-8  # deviation of an image of one value


def normalize(
    x: Shaped[Tensor, "b c h w"],
    config: NormalizeConfig,
    moments: Float[Tensor, "2 b c"] | None = None,
    bits: int | None = None,
) -> Float[Tensor, "b c h w"]:
    """Images, as in their files, normalized as `data.normalize` says.

    `moments` are mean and deviation of the whole images that x are patches of (`zscore`), `bits`
    those of an integer that are in use, if not all of its type (`unit`).

    >>> normalize(torch.tensor([[[[0, 51, 255]]]], dtype=torch.uint8), NormalizeConfig())
    tensor([[[[0.0000, 0.2000, 1.0000]]]])
    >>> grey = NormalizeConfig(kind="range", low=(-100.0,), high=(300.0,))
    >>> normalize(torch.tensor([[[[-100.0, 0.0, 700.0]]]]), grey)
    tensor([[[[0.0000, 0.2500, 2.0000]]]])
    """
    if config.kind == "unit":
        if x.is_floating_point():
            return x.float()
        return x.float() / (torch.iinfo(x.dtype).max if bits is None else (1 << bits) - 1)
    x = x.float()
    if config.kind == "zscore":
        if moments is None:
            moments = torch.stack([x.mean(dim=(2, 3)), x.std(dim=(2, 3), correction=0)])
        mean, deviation = moments[..., None, None]
        return (x - mean) / deviation.clamp_min(_SMALLEST)
    low, high, mean, deviation = (
        _column(values, x) for values in (config.low, config.high, config.mean, config.deviation)
    )
    if len(low) != x.shape[1]:
        raise MueError(
            f"data.normalize.low must have a number for each of the {x.shape[1]} channels of an "
            f"image, got {config.low}"
        )
    if config.kind == "range":
        return (x - low) / (high - low)
    return (x.maximum(low).minimum(high) - mean) / deviation


def _column(values: tuple[float, ...], x: Tensor) -> Float[Tensor, "c 1 1"]:
    """Numbers on the device of x without a copy from the host, which a CUDA graph cannot have."""
    return torch.cat([x.new_full((1, 1, 1), value) for value in values] or [x.new_empty(0, 1, 1)])


def choose_normalization(
    dtype: np.dtype, *, ct: bool, foreground: Shaped[np.ndarray, "c n"]
) -> NormalizeConfig:
    """The normalization that suits images of a type, by sampled pixels of their foreground.

    As nnU-Net does: CT is clipped to the percentiles 0.5 and 99.5 of the annotated pixels and
    standardized by their mean and deviation. Bytes, as in photographs, are divided by 255. All
    else, as MRI, has no common scale, and each image is standardized by itself.
    """
    if ct and foreground.shape[1]:
        values = foreground.astype(np.float64)
        low, high = np.percentile(values, (0.5, 99.5), axis=1)
        deviation = np.maximum(values.std(axis=1), _SMALLEST)
        return NormalizeConfig(
            kind="window",
            low=tuple(low.tolist()),
            high=tuple(np.maximum(high, low + _SMALLEST).tolist()),
            mean=tuple(values.mean(axis=1).tolist()),
            deviation=tuple(deviation.tolist()),
        )
    return NormalizeConfig(kind="unit" if dtype == np.uint8 else "zscore")
