"""torch.compile, and forms of modules that a compiler makes more of.

Each form computes what its plain counterpart in `mue.nn` computes; tests compare them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mue.nn.blocks import UpsampleConcat
from mue.nn.unet import Readout

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_EXPECTED_WARNINGS = (
    "The .grad attribute of a Tensor that is not",  # the compiler inspects features
    "TensorFloat32 tensor cores",  # distances to codes are meant to be float32
)


class Compiled(nn.Module):
    """A module whose forward is compiled for its first shapes, until `enabled` is turned off.

    `plain` is taken then: the module itself, or the counterpart of a form made for a compiler.
    """

    def __init__(self, module: nn.Module, plain: nn.Module | None = None) -> None:
        super().__init__()
        self.plain = module if plain is None else plain
        self.enabled = True
        self._compiled = torch.compile(module.forward, dynamic=False)

    def forward(self, *inputs: Any) -> Any:
        """That of the module."""
        return self._compiled(*inputs) if self.enabled else self.plain(*inputs)


@contextmanager
def without_expected_warnings() -> Iterator[None]:
    """Silence what a compiler warns of and what is meant so."""
    with warnings.catch_warnings():
        for message in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message)
        yield


def compiled_or_plain(
    function: Callable[Arguments, Result], on_failure: Callable[[Exception], None]
) -> Callable[Arguments, Result]:
    """A function compiled or, once that has failed and `on_failure` has not raised, as it is."""
    compiled = torch.compile(function, dynamic=False)
    failed = False

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        nonlocal failed
        if not failed:
            try:
                with without_expected_warnings():
                    return compiled(*args, **kwargs)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # whatever a compiler may raise
                on_failure(error)
                failed = True
        return function(*args, **kwargs)

    return call


class ChannelwiseGroupNorm(nn.GroupNorm):
    """Group normalization from the moments of single channels, which preserves channels_last.

    PyTorch's form wants the channels of a group contiguous: images in channels_last would be
    copied to another memory format and back, in both directions. The moments are those of the
    differences to one of the pixels: squares of numbers far from 0 would lose digits.
    """

    @classmethod
    def of(cls, norm: nn.GroupNorm) -> ChannelwiseGroupNorm:
        """With the parameters of another."""
        with torch.device("meta"):
            new = cls(norm.num_groups, norm.num_channels, norm.eps)
        new.weight, new.bias = norm.weight, norm.bias
        return new

    def forward(self, input: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:  # noqa: A002
        """Normalize each group of channels, then scale and shift each channel, in float32."""
        x = input.float()
        pixel = x[:, :, :1, :1].detach()
        gap = x - pixel
        mean, square = gap.mean(dim=(2, 3), keepdim=True), gap.square().mean((2, 3), keepdim=True)
        var, mean = square - mean.square(), mean + pixel
        of_group = self._over_groups(mean)
        var = self._over_groups(var + (mean - of_group).square())
        scale = (var + self.eps).rsqrt() * self.weight[:, None, None]
        return (x - of_group) * scale + self.bias[:, None, None]

    def _over_groups(self, x: Float[Tensor, "b c 1 1"]) -> Float[Tensor, "b c 1 1"]:
        """Each channel's value replaced by the mean over its group."""
        groups = x.unflatten(1, (self.num_groups, -1))
        return groups.mean(dim=2, keepdim=True).expand_as(groups).flatten(1, 2)


class PolyphaseUpsampleConcat(UpsampleConcat):
    """Bilinear upsampling by its phases, which a compiler fuses with what surrounds it.

    Along one side, new samples are a quarter to each side of an old one: 3/4 of it and 1/4 of its
    neighbour. The gradient needs no atomic additions. Preserves channels_last.
    """

    def forward(
        self, h: Float[Tensor, "b c h w"], skip: Float[Tensor, "b c2 h2 w2"]
    ) -> Float[Tensor, "b c3 h2 w2"]:
        """Features of twice the size, followed by the channels of the skip connection."""
        return torch.cat([polyphase_upsample(h), skip], dim=1)


def polyphase_upsample(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h2 w2"]:
    """Twice the height and width, bilinear."""
    channels_last = x.is_contiguous(memory_format=torch.channels_last)
    for side in (2, 3):
        n = x.shape[side]
        before = torch.cat([x.narrow(side, 0, 1), x.narrow(side, 0, n - 1)], side)
        after = torch.cat([x.narrow(side, 1, n - 1), x.narrow(side, n - 1, 1)], side)
        pair = torch.stack([0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after], side + 1)
        x = pair.flatten(side, side + 1)
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x


class FusibleReadout(Readout):
    """A readout whose last convolution, where it has one output channel, is a sum that is fused."""

    def __init__(self, readout: Readout) -> None:
        nn.ModuleList.__init__(self, list(readout))

    @staticmethod
    def conv1x1(h: Float[Tensor, "b p k c"], conv: nn.Conv2d) -> Float[Tensor, "b p k c2"]:
        """A 1x1 convolution where channels are the last axis."""
        if conv.out_channels > 1 or conv.bias is None:
            return Readout.conv1x1(h, conv)
        return (h * conv.weight[0, :, 0, 0]).sum(dim=3, keepdim=True) + conv.bias
